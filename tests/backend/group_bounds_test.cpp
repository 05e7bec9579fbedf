// Tests jobs with many groups: made late on one rank, closed early, or more than there is memory
// for at full size.
#include "base/open_files.h"
#include "support/ranks.h"

namespace mccl {
namespace {

using testing::run_ranks;
using testing::test_config;

constexpr std::chrono::seconds kLimit{60};

std::shared_ptr<Group> pair_group(Context& context, int number) {
  return context.group("group " + std::to_string(number), {0, 1}, kLimit);
}

Work start_all_reduce(Group& group, std::vector<std::int32_t>& data) {
  const Buffer buffer{data.data(), data.size(), DType::i32};
  return group.all_reduce(buffer, buffer, ReduceKind::sum);
}

Config over(const std::string& transport) {
  Config config = test_config();
  config.transport = transport;
  config.calibrate = false;
  return config;
}

class Groups : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Over, Groups, ::testing::Values("auto", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

/// Rank 0 starts calls in all groups before rank 1 makes the first of them.
TEST_P(Groups, MessagesForAThousandUnmadeGroupsAreKept) {
  constexpr int kGroups = 1100;
  const bool tcp = std::string(GetParam()) == "tcp";
  // Over tcp, every group needs a pair of sockets in this one process.
  const int count = tcp ? 100 : kGroups;
  run_ranks(
      2,
      [count](Context& context) {
        Group& world = *context.world();
        char token = 0;
        const Buffer told{&token, 1, DType::u8};
        std::vector<std::shared_ptr<Group>> groups;
        std::vector<std::vector<std::int32_t>> data(static_cast<std::size_t>(count), {1, 2});
        std::vector<Work> works;
        if (context.rank() == 1) world.recv(told, 0, 0).wait();
        for (int i = 0; i < count; ++i) {
          groups.push_back(pair_group(context, i));
          works.push_back(start_all_reduce(*groups.back(), data[static_cast<std::size_t>(i)]));
        }
        if (context.rank() == 0) world.send(told, 1, 0).wait();
        for (const Work& work : works) work.wait();
        for (const auto& each : data) ASSERT_EQ(each, (std::vector<std::int32_t>{2, 4}));
      },
      [](int) { return over(GetParam()); });
}

TEST_P(Groups, ACallOnAGroupThatAPeerHasDestroyedNamesIt) {
  run_ranks(
      2,
      [](Context& context) {
        auto received = pair_group(context, 0);
        auto reduced = pair_group(context, 1);
        Group& world = *context.world();
        if (context.rank() == 1) received.reset(), reduced.reset();
        world.barrier().wait();
        if (context.rank() == 0) {
          char token = 0;
          std::vector<std::int32_t> data{1};
          for (const Work& work :
               {received->recv({&token, 1, DType::u8}, 1, 0), start_all_reduce(*reduced, data)}) {
            try {
              work.wait();
              ADD_FAILURE() << "a call completed in a group that the peer has destroyed";
            } catch (const PeerError& error) {
              EXPECT_NE(std::string(error.what()).find("it has destroyed this group"),
                        std::string::npos)
                  << error.what();
            }
          }
        }
        world.barrier().wait();
      },
      [](int) { return over(GetParam()); });
}

/// Groups that one rank has destroyed leave no open links on either rank.
TEST_P(Groups, ThatOneRankHasDestroyedLeaveNoLinks) {
  constexpr int kGroups = 100;
  run_ranks(
      2,
      [](Context& context) {
        Group& world = *context.world();
        world.barrier().wait();
        const std::size_t before = open_files();
        world.barrier().wait();
        std::vector<std::shared_ptr<Group>> groups;
        for (int i = 0; i < kGroups; ++i) groups.push_back(pair_group(context, i));
        char word = 0;
        const Buffer told{&word, 1, DType::u8};
        for (const auto& group : groups) {
          context.rank() == 0 ? group->send(told, 1, 0).wait() : group->recv(told, 0, 0).wait();
        }
        // Each rank destroys half of the groups, so that both the rank that has dialled a link and
        // the other rank destroy some.
        for (int i = context.rank(); i < kGroups; i += 2)
          groups[static_cast<std::size_t>(i)].reset();
        world.barrier().wait();
        char token = 0;
        std::vector<Work> works;
        for (const auto& group : groups) {
          if (group) works.push_back(group->recv({&token, 1, DType::u8}, 1 - context.rank(), 0));
        }
        for (const Work& work : works) EXPECT_THROW(work.wait(), PeerError);
        groups.clear();
        // Links with data in flight may close a moment after their group.
        const auto limit = std::chrono::steady_clock::now() + kLimit;
        while (open_files() > before + 20 && std::chrono::steady_clock::now() < limit) {
          std::this_thread::yield();
        }
        EXPECT_LE(open_files(), before + 20);
        world.barrier().wait();
      },
      [](int) { return over(GetParam()); });
}

/// The shared memory has room for about thirty groups with windows of full size.
TEST(GroupMemory, HundredsOfGroupsFitWithoutFallingBackToTcp) {
  run_ranks(
      2,
      [](Context& context) {
        constexpr int kGroups = 300;
        std::vector<std::shared_ptr<Group>> groups;
        for (int i = 0; i < kGroups; ++i) {
          groups.push_back(pair_group(context, i));
          std::vector<std::int32_t> data(100'000, i);
          start_all_reduce(*groups.back(), data).wait();
          ASSERT_EQ(data.front(), 2 * i);
          ASSERT_EQ(data.back(), 2 * i);
          char token = static_cast<char>(i);
          const Buffer told{&token, 1, DType::u8};
          if (context.rank() == 0) groups.back()->send(told, 1, 0).wait();
          if (context.rank() == 1) groups.back()->recv(told, 0, 0).wait();
        }
        // A tcp link would have its own buffer in addition to the arena.
        EXPECT_LE(context.metrics()->summary().staging_bytes, std::uint64_t{200} << 20);
      },
      [](int) { return over("shm"); });
}

TEST(GroupMemory, IsReleasedWithTheGroupAndReused) {
  run_ranks(
      2,
      [](Context& context) {
        std::uint64_t after_first = 0;
        for (int i = 0; i < 200; ++i) {
          auto group = pair_group(context, i);
          std::vector<std::int32_t> data(1000, 1);
          const Work work = start_all_reduce(*group, data);
          work.wait();
          context.world()->barrier().wait();
          group.reset();  // the Work is still held
          context.world()->barrier().wait();
          const std::uint64_t staging = context.metrics()->summary().staging_bytes;
          if (i == 20) after_first = staging;
          if (i > 20) {
            ASSERT_LE(staging, after_first + (std::uint64_t{16} << 20)) << i;
          }
        }
      },
      [](int) { return over("shm"); });
}

/// The group fails before its window is complete, so a neighbour's part was offered but never
/// mapped.
TEST(GroupMemory, OfFailedGroupsIsReleased) {
  run_ranks(
      2,
      [](Context& context) {
        std::uint64_t after_first = 0;
        for (int i = 0; i < 60; ++i) {
          auto group = pair_group(context, i);
          std::vector<std::int32_t> data(1000, 1);
          const Buffer buffer{data.data(), data.size(), DType::i32};
          if (context.rank() == 0) {
            const Work work = group->all_reduce(buffer, buffer, ReduceKind::sum);
            context.world()->barrier().wait();
            group->abort("enough");
            EXPECT_THROW(work.wait(),
                         Error);  // fails here, or because the other rank destroyed the group first
          } else {
            context.world()->barrier().wait();
          }
          group.reset();
          context.world()->barrier().wait();
          const std::uint64_t staging = context.metrics()->summary().staging_bytes;
          if (i == 10) after_first = staging;
          if (i > 10) {
            // At most two more windows may exist than at the first measurement. If windows leaked,
            // there would be fifty more.
            ASSERT_LE(staging, after_first + (std::uint64_t{16} << 20)) << i;
          }
        }
      },
      [](int) { return over("shm"); });
}

/// Resources held by a Work of a closed group are released under the engine's lock, not by the
/// thread that drops the Work. ThreadSanitizer checks this here.
TEST(GroupMemory, OfAClosedGroupIsNotReleasedByTheThreadThatDropsAWork) {
  run_ranks(
      2,
      [](Context& context) {
        std::vector<Work> works;
        std::vector<std::vector<std::int32_t>> data(50, std::vector<std::int32_t>(100, 1));
        for (int i = 0; i < 50; ++i) {
          auto group = pair_group(context, i);
          works.push_back(start_all_reduce(*group, data[static_cast<std::size_t>(i)]));
          works.back().wait();
        }
        std::thread dropper([&] { works.clear(); });
        for (int i = 50; i < 100; ++i) {
          auto group = pair_group(context, i);
          std::vector<std::int32_t> more(100, 1);
          start_all_reduce(*group, more).wait();
        }
        dropper.join();
      },
      [](int) { return over("shm"); });
}

}  // namespace
}  // namespace mccl
