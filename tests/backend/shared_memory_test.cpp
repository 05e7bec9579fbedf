// Tests ranks that share memory: mismatched calls, groups made and destroyed, leaks.
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "support/ranks.h"

namespace mccl {
namespace {

using testing::run_failing_ranks;
using testing::run_ranks;
using testing::test_config;

/// Sets the transport to shm, so that a rank fails to start unless it shares memory with all
/// others.
std::function<Config(int)> shared_memory() {
  Config config = test_config();
  config.transport = "shm";
  config.calibrate = false;
  return [config](int) { return config; };
}

void all_reduce(Group& group, std::size_t count, const CallOptions& options = {}) {
  std::vector<float> data(count, 1);
  const Buffer buffer{data.data(), count, DType::f32};
  group.all_reduce(buffer, buffer, ReduceKind::sum, options).wait();
  for (const float value : data) ASSERT_EQ(value, static_cast<float>(group.size()));
}

/// Makes many small calls in a row. These reuse cache lines of the window, publish their data
/// inline, and run on the caller's thread.
TEST(SharedMemoryCalls, ManySmallOnesInARow) {
  for (const int ranks : {2, 3}) {
    run_ranks(
        ranks,
        [](Context& context) {
          Group& group = *context.world();
          for (std::int64_t i = 0; i < 5000; ++i) {
            std::int64_t data[7];
            const std::size_t count = 1 + static_cast<std::size_t>(i % 7);
            std::fill(data, data + count, i * (group.rank() + 1));
            const Buffer buffer{data, count, DType::i64};
            if (i % 3 == 0) {
              group.broadcast(buffer, static_cast<int>(i % group.size())).wait();
              ASSERT_EQ(data[count - 1], i * (i % group.size() + 1));
            } else {
              group.all_reduce(buffer, buffer, ReduceKind::sum).wait();
              ASSERT_EQ(data[count - 1], i * group.size() * (group.size() + 1) / 2);
            }
          }
        },
        shared_memory());
  }
}

void expect_all(const std::vector<std::string>& errors, const std::vector<std::string>& words) {
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    for (const std::string& word : words) {
      EXPECT_NE(errors[rank].find(word), std::string::npos)
          << "rank " << rank << " said '" << errors[rank] << "', expected '" << word << "'";
    }
  }
}

class MismatchOverSharedMemory : public ::testing::TestWithParam<int> {
 protected:
  std::vector<std::string> run(const std::function<void(Group&, bool odd)>& body) {
    return run_failing_ranks(
        GetParam(),
        [&](Context& context) {
          Group& group = *context.world();
          all_reduce(group, 10);
          body(group, context.rank() == 1);
          group.barrier().wait();
          group.barrier().wait();
        },
        shared_memory());
  }
};

TEST_P(MismatchOverSharedMemory, OfRootsNamesBothCalls) {
  const auto errors = run([](Group& group, bool odd) {
    float value = 1;
    group.broadcast({&value, 1, DType::f32}, odd ? 1 : 0).wait();
  });
  expect_all(errors, {"broadcast #2 (1 f32, root 0)", "broadcast #2 (1 f32, root 1)"});
}

TEST_P(MismatchOverSharedMemory, OfCountsNamesBothCalls) {
  for (const std::size_t count : {std::size_t{5}, std::size_t{3'000'000}}) {
    const auto errors =
        run([&](Group& group, bool odd) { all_reduce(group, odd ? count + 1 : count); });
    expect_all(errors, {"all_reduce #2 (sum of " + std::to_string(count) + " f32)",
                        "all_reduce #2 (sum of " + std::to_string(count + 1) + " f32)"});
  }
}

TEST_P(MismatchOverSharedMemory, OfACountFromTheRootOnNamesBothCalls) {
  const auto errors = run([](Group& group, bool odd) {
    std::vector<float> data(3'000'000);
    group.broadcast({data.data(), odd ? data.size() : 3, DType::f32}, 0).wait();
  });
  expect_all(errors, {"broadcast #2 (3 f32, root 0)", "broadcast #2 (3000000 f32, root 0)"});
}

TEST_P(MismatchOverSharedMemory, OfOperationsNamesBothCalls) {
  const auto errors = run([](Group& group, bool odd) {
    float value = 1;
    const Buffer data{&value, 1, DType::f32};
    group.all_reduce(data, data, odd ? ReduceKind::min : ReduceKind::max).wait();
  });
  expect_all(errors, {"min of 1 f32", "max of 1 f32"});
}

TEST_P(MismatchOverSharedMemory, OfCollectivesNamesBothCalls) {
  const auto errors = run([](Group& group, bool odd) {
    if (odd) {
      group.barrier().wait();
    } else {
      all_reduce(group, 10);
    }
  });
  expect_all(errors, {"barrier #2", "all_reduce #2"});
}

INSTANTIATE_TEST_SUITE_P(Ranks, MismatchOverSharedMemory, ::testing::Values(2, 3, 5));

/// Returns the open files of this process and the named shared memory of all engines. Leaves out
/// files with keys, because other jobs may start meanwhile.
std::set<std::string> files_of_this_process() {
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    files.insert(std::filesystem::read_symlink(entry.path(), error).string());
  }
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("mccl-") && !name.starts_with("mccl-key-")) files.insert(name);
  }
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("mccl (deleted)") != std::string::npos) files.insert("mapped");
  }
  return files;
}

TEST(SharedMemoryFiles, NothingIsLeftBehind) {
  const std::size_t before = files_of_this_process().size();
  for (int i = 0; i < 3; ++i) {
    run_ranks(
        4, [](Context& context) { all_reduce(*context.world(), 100'000); }, shared_memory());
  }
  run_failing_ranks(
      3,
      [](Context& context) {
        if (context.rank() == 1) throw std::runtime_error("it leaves");
        all_reduce(*context.world(), 1'000'000);
      },
      shared_memory());
  const std::set<std::string> after = files_of_this_process();
  EXPECT_EQ(after.count("mapped"), 0u);
  EXPECT_EQ(after.size(), before);
}

/// Returns the memory in KiB that the arenas of this process occupy.
std::size_t shared_kilobytes() {
  std::map<ino_t, std::size_t> by_file;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    struct stat status = {};
    std::error_code error;
    const std::string name = std::filesystem::read_symlink(entry.path(), error).string();
    if (name.find("memfd:mccl") == std::string::npos) continue;
    if (::stat(entry.path().c_str(), &status) != 0) continue;
    by_file[status.st_ino] = static_cast<std::size_t>(status.st_blocks) / 2;
  }
  std::size_t sum = 0;
  for (const auto& [file, kilobytes] : by_file) sum += kilobytes;
  return sum;
}

TEST(SharedMemoryGroups, SixtyStayWithinTheBudgetAndWork) {
  constexpr int kRanks = 3;
  run_ranks(
      kRanks,
      [](Context& context) {
        std::vector<std::shared_ptr<Group>> groups;
        for (int i = 0; i < 60; ++i) {
          groups.push_back(
              context.group("group " + std::to_string(i), {0, 1, 2}, std::chrono::seconds(60)));
          all_reduce(*groups.back(), 300'000);
        }
        for (const auto& group : groups) all_reduce(*group, 10);
        context.world()->barrier().wait();
        const std::size_t taken = shared_kilobytes();
        EXPECT_GT(taken, kRanks * 60 * 1024u) << "shared_kilobytes() misses memory";
        EXPECT_LE(taken, kRanks * (64 + 2 * 8) * 1024u);
        context.world()->barrier().wait();
      },
      shared_memory());
}

/// Each group is destroyed on all ranks before the next one is made, so all groups can use the same
/// memory.
TEST(SharedMemoryGroups, GroupsInTurnUseTheMemoryOfAFew) {
  run_ranks(
      2,
      [](Context& context) {
        for (int i = 0; i < 100; ++i) {
          {
            const auto group =
                context.group("group " + std::to_string(i), {0, 1}, std::chrono::seconds(60));
            all_reduce(*group, 10);
          }
          context.world()->barrier().wait();
        }
        EXPECT_LE(shared_kilobytes(), 2 * 16 * 1024u);
        context.world()->barrier().wait();
      },
      shared_memory());
}

/// Groups that never make a call, such as some of torch's, must not allocate memory.
TEST(SharedMemoryGroups, UnusedGroupsUseNoMemory) {
  run_ranks(
      2,
      [](Context& context) {
        for (int i = 0; i < 100; ++i) {
          context.group("unused " + std::to_string(i), {0, 1}, std::chrono::seconds(60));
          context.world()->barrier().wait();
        }
        EXPECT_LE(shared_kilobytes(), 2 * 16 * 1024u);
        context.world()->barrier().wait();
      },
      shared_memory());
}

/// Rank 0 makes a group of a name again while rank 1 still has the old group of that name.
TEST(SharedMemoryGroups, MayReuseAName) {
  run_ranks(
      2,
      [](Context& context) {
        const std::string name = "again";
        for (int i = 0; i < 5; ++i) {
          std::shared_ptr<Group> group = context.group(name, {0, 1}, std::chrono::seconds(20));
          all_reduce(*group, 1000);
          if (context.rank() == 1) {
            // Before it sends this message, rank 0 has destroyed its group, made the next one and
            // started a call in it.
            char token = 0;
            context.world()->recv({&token, 1, DType::u8}, 0, 0).wait();
            group.reset();
          } else {
            group.reset();
            group = context.group(name, {0, 1}, std::chrono::seconds(20));
            const Work next = group->barrier();
            char token = 0;
            context.world()->send({&token, 1, DType::u8}, 1, 0).wait();
            next.wait();
            all_reduce(*group, 1000);
            continue;
          }
          group = context.group(name, {0, 1}, std::chrono::seconds(20));
          group->barrier().wait();
          all_reduce(*group, 1000);
        }
      },
      shared_memory());
}

}  // namespace
}  // namespace mccl
