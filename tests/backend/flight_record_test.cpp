// Tests what the flight record contains after real calls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <vector>

#include "support/folder.h"
#include "support/ranks.h"

namespace mccl {
namespace {

using testing::Folder;
using testing::run_failing_ranks;
using testing::run_ranks;
using testing::test_config;
using Json = nlohmann::json;

std::vector<Json> calls_named(const Json& record, std::string_view name) {
  std::vector<Json> found;
  for (const Json& call : record["calls"])
    if (call["call"] == name) found.push_back(call);
  return found;
}

Json record_of(const Context& context) { return Json::parse(context.flight_record()); }

void all_reduce(Group& group, std::size_t count) {
  std::vector<float> data(count, 1);
  const Buffer buffer{data.data(), count, DType::f32};
  group.all_reduce(buffer, buffer, ReduceKind::sum).wait();
}

class FlightRecordOver : public ::testing::TestWithParam<const char*> {};

TEST_P(FlightRecordOver, HasEveryCollectiveWithItsTimes) {
  const auto config_of = [](int) {
    Config config = test_config();
    config.transport = GetParam();
    return config;
  };
  run_ranks(
      2,
      [](Context& context) {
        for (int i = 0; i < 3; ++i) all_reduce(*context.world(), 1000);
        const Json record = record_of(context);
        EXPECT_EQ(record["rank"], context.rank());
        const std::vector<Json> calls = calls_named(record, "all_reduce");
        ASSERT_EQ(calls.size(), 3U);
        for (std::size_t i = 0; i < calls.size(); ++i) {
          EXPECT_EQ(calls[i]["sequence"], i + 1);
          EXPECT_EQ(calls[i]["bytes"], 4000);
          EXPECT_EQ(calls[i]["state"], "done");
          EXPECT_EQ(calls[i]["transport"], GetParam());
          EXPECT_TRUE(calls[i].contains("algorithm")) << calls[i];
          EXPECT_LE(calls[i]["started_ns"], calls[i]["ended_ns"]);
          EXPECT_LE(calls[i]["ended_ns"], record["unix_ns"]);
        }
        EXPECT_LE(calls[0]["ended_ns"], calls[1]["started_ns"]);
      },
      config_of);
}
INSTANTIATE_TEST_SUITE_P(Transports, FlightRecordOver, ::testing::Values("shm", "tcp"));

TEST(FlightRecord, HasMessagesWithPeerNumberAndSize) {
  run_ranks(2, [](Context& context) {
    constexpr std::size_t kSizes[] = {8, 100'000, 8};
    Group& group = *context.world();
    for (const std::size_t bytes : kSizes) {
      std::vector<char> data(bytes);
      context.rank() == 0 ? group.send({data.data(), bytes, DType::u8}, 1, 7).wait()
                          : group.recv({data.data(), bytes, DType::u8}, 0, 7).wait();
    }
    const auto calls = calls_named(record_of(context), context.rank() == 0 ? "send" : "recv");
    ASSERT_EQ(calls.size(), 3U);
    for (std::size_t i = 0; i < calls.size(); ++i) {
      EXPECT_EQ(calls[i]["sequence"], i + 1);
      EXPECT_EQ(calls[i]["bytes"], kSizes[i]);
      EXPECT_EQ(calls[i]["peer"], 1 - context.rank());
      EXPECT_EQ(calls[i]["state"], "done");
    }
  });
}

TEST(FlightRecord, NamesTheRankThatAFailedCallWaitedFor) {
  const Folder folder;
  run_failing_ranks(
      3,
      [](Context& context) {
        all_reduce(*context.world(), 10);
        if (context.rank() == 1) {
          while (context.world()->failure().empty()) std::this_thread::yield();
          return;
        }
        std::vector<float> data(10);
        const Buffer buffer{data.data(), 10, DType::f32};
        const Work late = context.world()->all_reduce(buffer, buffer, ReduceKind::sum,
                                                      {.timeout = std::chrono::milliseconds(200)});
        EXPECT_THROW(late.wait(), TimeoutError);
        const auto calls = calls_named(record_of(context), "all_reduce");
        ASSERT_EQ(calls.size(), 2U);
        EXPECT_EQ(calls[1]["state"], "failed");
        EXPECT_EQ(calls[1]["waits_for"], 1);
      },
      [&](int) {
        Config config = test_config();
        config.flight_recorder_file = folder.path();
        return config;
      });
  std::set<int> ranks;
  for (const auto& each : std::filesystem::directory_iterator(folder.path())) {
    const Json record = Json::parse(std::ifstream(each.path()));
    EXPECT_EQ(record["reason"], "failure");
    ranks.insert(record["rank"].get<int>());
  }
  EXPECT_EQ(ranks, (std::set<int>{0, 1, 2}));
}

TEST(FlightRecord, ARegularEndWritesNoFile) {
  const Folder folder;
  run_ranks(
      2, [](Context& context) { all_reduce(*context.world(), 10); },
      [&](int) {
        Config config = test_config();
        config.flight_recorder_file = folder.path();
        return config;
      });
  EXPECT_TRUE(folder.empty());
}

}  // namespace
}  // namespace mccl
