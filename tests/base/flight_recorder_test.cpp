#include "base/flight_recorder.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>

#include "mccl/call_site.h"

namespace mccl {
namespace {

using Json = nlohmann::json;

FlightEntry entry_with(std::uint64_t value) {
  FlightEntry entry;
  entry.sequence = entry.bytes = value;
  entry.submitted = entry.started = entry.ended = static_cast<std::int64_t>(value);
  return entry;
}

TEST(FlightRecorder, KeepsTheLastCallsInOrder) {
  FlightRecorder recorder({});
  constexpr std::uint64_t kMore = FlightRecorder::kCalls + 10;
  for (std::uint64_t i = 0; i < kMore; ++i) EXPECT_EQ(recorder.write(entry_with(i)), i);
  EXPECT_FALSE(recorder.read(9));
  EXPECT_FALSE(recorder.read(kMore));
  for (std::uint64_t i = 10; i < kMore; ++i) {
    ASSERT_TRUE(recorder.read(i));
    EXPECT_EQ(recorder.read(i)->sequence, i);
  }
  const Json record = Json::parse(recorder.to_json("asked"));
  EXPECT_EQ(record["calls"].size(), FlightRecorder::kCalls);
  EXPECT_EQ(record["calls"].front()["number"], 10);
  EXPECT_EQ(record["calls_made"], kMore);
}

TEST(FlightRecorder, ACallThatTheRingHasOvertakenIsWrittenAnew) {
  FlightRecorder recorder({});
  const std::uint64_t first = recorder.write(entry_with(7));
  EXPECT_EQ(recorder.write(entry_with(8), first), first);
  EXPECT_EQ(recorder.read(first)->sequence, 8U);
  for (std::uint64_t i = 0; i < FlightRecorder::kCalls; ++i) recorder.write(entry_with(0));
  EXPECT_EQ(recorder.write(entry_with(9), first), FlightRecorder::kCalls + 1);
  EXPECT_FALSE(recorder.read(first));
}

TEST(FlightRecorder, AReaderSeesNoHalfWrittenCall) {
  FlightRecorder recorder({});
  std::atomic<bool> over{false};
  std::thread writer([&] {
    for (std::uint64_t i = 0; !over; ++i) recorder.write(entry_with(i), 0);
  });
  for (int seen = 0; seen < 10'000;) {
    const std::optional<FlightEntry> entry = recorder.read(0);
    if (!entry) continue;
    ++seen;
    ASSERT_EQ(entry->sequence, entry->bytes);
    ASSERT_EQ(entry->sequence, static_cast<std::uint64_t>(entry->ended));
  }
  over = true;
  writer.join();
}

TEST(FlightRecorder, ShowsACallWithItsGroupAndTimes) {
  FlightRecorder recorder({.job = "j", .host = "desk", .rank = 1, .size = 3});
  const std::uint32_t group = recorder.add_group(
      {.name = "pair", .id = 0xab, .rank = 0, .members = {1, 2}, .transports = {"", "tcp"}});
  FlightEntry call = entry_with(5);
  call.group = group;
  call.algorithm = recorder.index_of("ring");
  call.collective = Collective::all_reduce;
  call.kind = ReduceKind::max;
  call.dtype = DType::bf16;
  call.state = FlightEntry::failed;
  call.waits_for = 1;
  call.sequence = (std::uint64_t{1} << 48) - 1;
  call.site = call_site("train.py:42")->number;
  call.submitted = 0;
  call.in_cycles = true;
  call.started = cycle_count();
  call.ended = cycle_count();
  recorder.write(call);
  const Json record = Json::parse(recorder.to_json("failure"));
  EXPECT_EQ(record["format"], "mccl flight record");
  EXPECT_EQ(record["reason"], "failure");
  EXPECT_EQ(record["host"], "desk");
  EXPECT_EQ(record["groups"][0]["members"], Json({1, 2}));
  const Json& shown = record["calls"][0];
  EXPECT_EQ(shown["call"], "all_reduce");
  EXPECT_EQ(shown["op"], "max");
  EXPECT_EQ(shown["dtype"], "bf16");
  EXPECT_EQ(shown["algorithm"], "ring");
  EXPECT_EQ(shown["transport"], "tcp");
  EXPECT_EQ(shown["state"], "failed");
  EXPECT_EQ(shown["waits_for"], 1);
  EXPECT_EQ(shown["sequence"], (std::uint64_t{1} << 48) - 1);
  EXPECT_EQ(shown["site"], "train.py:42");
  EXPECT_FALSE(shown.contains("submitted_ns"));
  EXPECT_LE(shown["started_ns"], shown["ended_ns"]);
  EXPECT_LE(std::llabs(record["unix_ns"].get<long long>() - shown["ended_ns"].get<long long>()),
            60'000'000'000);
}

TEST(FlightRecorder, ShowsTheTransportToThePeerOfAMessage) {
  FlightRecorder recorder({});
  recorder.add_group({"world", 1, 0, {0, 1, 2}, {"", "shm", "rdma"}});
  FlightEntry message;
  message.collective = Collective::send;
  message.peer = 2;
  message.state = FlightEntry::running;
  recorder.write(message);
  message.collective = Collective::barrier;
  message.peer = -1;
  recorder.write(message);
  message.algorithm = recorder.index_of("one_shot");
  recorder.write(message);
  const Json calls = Json::parse(recorder.to_json("asked"))["calls"];
  EXPECT_EQ(calls[0]["transport"], "rdma");
  EXPECT_EQ(calls[0]["peer"], 2);
  EXPECT_EQ(calls[1]["transport"], "rdma+shm");
  EXPECT_EQ(calls[2]["transport"], "shm");
  EXPECT_FALSE(calls[0].contains("started_ns"));
}

TEST(FlightRecorder, ForgetsTheOldestGroups) {
  FlightRecorder recorder({});
  for (std::size_t i = 0; i < FlightRecorder::kMostGroups + 5; ++i)
    recorder.add_group({.name = std::to_string(i)});
  const Json groups = Json::parse(recorder.to_json("asked"))["groups"];
  ASSERT_EQ(groups.size(), FlightRecorder::kMostGroups);
  EXPECT_EQ(groups.front()["name"], "5");
}

}  // namespace
}  // namespace mccl
