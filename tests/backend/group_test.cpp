// Groups of groups, coalesced calls, callbacks, settings that change how bytes travel.
#include <atomic>

#include "support/ranks.h"

namespace mccl {
namespace {

using testing::run_ranks;
using testing::test_config;

Buffer buffer(std::vector<float>& data) { return {data.data(), data.size(), DType::f32}; }

TEST(Groups, SplitByColorAndKey) {
  run_ranks(5, [](Context& context) {
    const int world_rank = context.rank();
    for (int round = 0; round < 3; ++round) {
      const auto part = context.world()->split(world_rank % 2, -world_rank);
      ASSERT_EQ(part->size(), world_rank % 2 ? 2 : 3);
      ASSERT_EQ(part->rank(), (part->size() - 1) - world_rank / 2);  // by key: reversed
      std::vector<float> data(1000, static_cast<float>(world_rank));
      part->all_reduce(buffer(data), buffer(data), ReduceKind::sum).wait();
      ASSERT_EQ(data, std::vector<float>(1000, world_rank % 2 ? 4.0f : 6.0f));
      const auto single = part->split(part->rank(), 0);
      ASSERT_EQ(single->size(), 1);
      single->barrier().wait();
      ASSERT_EQ(context.world()->split(world_rank == 0 ? 1 : -1, 0) == nullptr, world_rank != 0);
    }
  });
}

TEST(Groups, OverlapAndDoNotBlockOneAnother) {
  run_ranks(4, [](Context& context) {
    const int rank = context.rank();
    // Rank 0 enters the pair's call only after the world's; rank 1 the other way round.
    std::shared_ptr<Group> pair;
    if (rank < 2) pair = context.group("pair", {0, 1}, std::chrono::seconds(30));
    std::vector<float> a(100'000, 1);
    std::vector<float> b(100'000, 1);
    std::vector<Work> works;
    if (rank == 1) works.push_back(pair->all_reduce(buffer(b), buffer(b), ReduceKind::sum));
    works.push_back(context.world()->all_reduce(buffer(a), buffer(a), ReduceKind::sum));
    if (rank == 0) works.push_back(pair->all_reduce(buffer(b), buffer(b), ReduceKind::sum));
    for (const Work& work : works) work.wait();
    ASSERT_EQ(a[99'999], 4);
    if (rank < 2) {
      ASSERT_EQ(b[99'999], 2);
    }
    context.world()->barrier().wait();
  });
}

TEST(Groups, ConcurrentCallersOfDifferentGroups) {
  run_ranks(2, [](Context& context) {
    std::vector<std::shared_ptr<Group>> groups;
    for (int i = 0; i < 4; ++i) {
      groups.push_back(context.group("g" + std::to_string(i), {0, 1}, std::chrono::seconds(30)));
    }
    std::vector<std::thread> threads;
    for (const auto& group : groups) {
      threads.emplace_back([&group] {
        for (int i = 0; i < 50; ++i) {
          std::vector<float> data(static_cast<std::size_t>(i) * 100 + 1, 1);
          group->all_reduce(buffer(data), buffer(data), ReduceKind::sum, {.caller_waits = true})
              .wait();
          EXPECT_EQ(data.back(), 2);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

TEST(Groups, WaitingForACoalescedCallBeforeItBeginsIsAnErrorAndNotForEver) {
  run_ranks(2, [](Context& context) {
    Group& group = *context.world();
    std::vector<float> values(4, 1.0F);
    const Buffer buffer{values.data(), values.size(), DType::f32};
    group.begin_coalescing();
    const Work call = group.all_reduce(buffer, buffer, ReduceKind::sum);
    EXPECT_THROW(call.wait(), InvalidArgument);
    EXPECT_FALSE(call.done());
    group.end_coalescing().wait();
    call.wait();
    EXPECT_EQ(values, std::vector<float>(4, 2.0F));
  });
}

TEST(Groups, CoalescedCallsAreOneWork) {
  run_ranks(3, [](Context& context) {
    Group& group = *context.world();
    std::vector<float> a(10, 1);
    std::vector<float> b(5000, 2);
    float token = 3;
    group.begin_coalescing();
    group.all_reduce(buffer(a), buffer(a), ReduceKind::sum);
    group.all_reduce(buffer(b), buffer(b), ReduceKind::sum);
    const int next = (group.rank() + 1) % 3;
    float got = 0;
    group.send({&token, 1, DType::f32}, next, 0);
    group.recv({&got, 1, DType::f32}, (group.rank() + 2) % 3, 0);
    const Work work = group.end_coalescing();
    work.wait();
    ASSERT_TRUE(work.done());
    ASSERT_EQ(a[9], 3);
    ASSERT_EQ(b[4999], 6);
    ASSERT_EQ(got, 3);
  });
}

TEST(Works, CallbacksRunOnceAndMayStartCalls) {
  run_ranks(2, [](Context& context) {
    Group& group = *context.world();
    std::vector<float> a(1000, 1);
    std::vector<float> b(1000, 1);
    std::atomic<int> calls = 0;
    std::atomic<bool> second_done = false;
    const Work first = group.all_reduce(buffer(a), buffer(a), ReduceKind::sum);
    first.on_done([&](std::exception_ptr error) {
      EXPECT_EQ(error, nullptr);
      ++calls;
      // As a DDP hook does: another call, waited for inside the callback.
      group.all_reduce(buffer(b), buffer(b), ReduceKind::sum).wait();
      second_done = true;
    });
    first.wait();
    while (!second_done) std::this_thread::yield();
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(b[0], 2);
    first.on_done([&](std::exception_ptr) { ++calls; });
    EXPECT_EQ(calls, 2);
  });
}

class Wire : public ::testing::TestWithParam<const char*> {};

TEST_P(Wire, SettingsChangeHowBytesTravelButNotWhatArrives) {
  const std::string setting = GetParam();
  run_ranks(
      3,
      [](Context& context) {
        Group& group = *context.world();
        for (const std::size_t count : {1u, 1000u, 2'000'003u}) {
          std::vector<float> data(count, static_cast<float>(context.rank()));
          group.all_reduce(buffer(data), buffer(data), ReduceKind::sum).wait();
          ASSERT_EQ(data, std::vector<float>(count, 3));
          std::vector<float> message(count, 1);
          std::vector<float> got(count, 0);
          const Work send = group.send(buffer(message), (group.rank() + 1) % 3, 1);
          group.recv(buffer(got), (group.rank() + 2) % 3, 1).wait();
          send.wait();
          ASSERT_EQ(got, message);
        }
      },
      [&setting](int) {
        Config config = test_config();
        config.set(setting.substr(0, setting.find('=')), setting.substr(setting.find('=') + 1));
        return config;
      });
}

INSTANTIATE_TEST_SUITE_P(Settings, Wire,
                         ::testing::Values("transport_crc=1", "chunk_bytes=64K", "spin_us=0",
                                           "link_profile=thunderbolt", "socket_buffer_bytes=16K",
                                           "listen_addr=127.0.0.1,127.0.0.2", "ifname=lo",
                                           "listen_addr=::1"));

TEST(Metrics, CountCallsBytesAndTimesOverAllGroups) {
  run_ranks(2, [](Context& context) {
    const auto other = context.group("other", {0, 1}, std::chrono::seconds(30));
    std::vector<float> data(100'000, 1);
    for (int i = 0; i < 5; ++i) {
      context.world()->all_reduce(buffer(data), buffer(data), ReduceKind::sum).wait();
      other->all_reduce(buffer(data), buffer(data), ReduceKind::sum).wait();
    }
    const MetricsSummary summary = context.metrics()->summary();
    EXPECT_EQ(summary.total_ops, 10u);
    EXPECT_EQ(summary.total_errors, 0u);
    EXPECT_GE(summary.total_bytes_sent, 10u * 400'000);
    EXPECT_GE(summary.total_bytes_recv, 10u * 400'000);
    EXPECT_GT(summary.p99_latency_ms, 0);
    EXPECT_GT(summary.avg_reduce_ms, 0);
    EXPECT_GT(summary.peak_throughput_gbps, 0);
  });
}

TEST(Metrics, StagingIsCountedAndStaysSmall) {
  for (const std::string_view transport : {"auto", "tcp"}) {
    Config config = test_config();
    config.set("transport", transport);
    run_ranks(
        3,
        [](Context& context) {
          std::vector<float> data(3'000'000, 1);
          context.world()->all_reduce(buffer(data), buffer(data), ReduceKind::sum).wait();
          const std::uint64_t peers = 2;
          const MetricsSummary summary = context.metrics()->summary();
          EXPECT_GT(summary.staging_bytes, 0u);
          EXPECT_LE(summary.peak_staging_bytes, (64u + 8u * peers) << 20);
        },
        [&](int) { return config; });
  }
}

TEST(Shutdown, EndsEveryLaterCallAtOnce) {
  const std::vector<std::string> said = testing::run_failing_ranks(2, [](Context& context) {
    const std::shared_ptr<Group> world = context.world();
    std::shared_ptr<Group> other = context.group("other", {0, 1}, std::chrono::seconds(30));
    std::vector<float> data(100, 1);
    world->all_reduce(buffer(data), buffer(data), ReduceKind::sum).wait();
    EXPECT_GT(context.metrics()->summary().staging_bytes, 0u);
    context.shutdown();
    EXPECT_EQ(context.metrics()->summary().staging_bytes, 0u);
    EXPECT_TRUE(world->barrier().done()) << "there may be nobody who waits";
    other.reset();
    for (int call = 0; call < 2; ++call) EXPECT_TRUE(world->barrier().done());
    EXPECT_EQ(context.metrics()->summary().staging_bytes, 0u) << "it was given back already";
    world->all_reduce(buffer(data), buffer(data), ReduceKind::sum, {.caller_waits = true}).wait();
  });
  for (const std::string& text : said) {
    EXPECT_NE(text.find("shut down"), std::string::npos) << text;
  }
}

TEST(SingleRank, NeedsNoStoreAndNoSocket) {
  const auto context = Context::create({0, 1, nullptr, test_config(), nullptr});
  std::vector<float> data(10, 4);
  std::vector<float> out(10, 0);
  context->world()->all_reduce(buffer(data), buffer(out), ReduceKind::avg).wait();
  EXPECT_EQ(out, data);
  const Work work = context->world()->barrier();
  EXPECT_TRUE(work.done());
}

}  // namespace
}  // namespace mccl
