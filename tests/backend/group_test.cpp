// Tests groups of the native engine: settings that change how bytes travel, metrics, shutdown.
#include "support/ranks.h"

namespace mccl {
namespace {

using testing::run_ranks;
using testing::test_config;

Buffer buffer(std::vector<float>& data) { return {data.data(), data.size(), DType::f32}; }

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
    EXPECT_TRUE(world->barrier().done()) << "no thread may wait for the call";
    other.reset();
    for (int call = 0; call < 2; ++call) EXPECT_TRUE(world->barrier().done());
    EXPECT_EQ(context.metrics()->summary().staging_bytes, 0u) << "memory was released twice";
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
