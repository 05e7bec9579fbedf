// The comparison of flight records, and their formats.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/sight/record.h"
#include "mccl/error.h"

namespace mccl::cli::sight {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::json;

constexpr std::int64_t kBegin = 1'700'000'000'000'000'000;
constexpr std::int64_t kMs = 1'000'000;

/// A record of one rank of two, without calls.
FlightRecord record_of(int rank, const std::string& host = "desk") {
  FlightRecord record;
  record.origin = "rank" + std::to_string(rank);
  record.job = "j";
  record.host = host;
  record.rank = rank;
  record.size = 2;
  record.pid = 40 + rank;
  record.written = kBegin + 1000 * kMs;
  record.groups.push_back({0, "world", "ab", rank, {0, 1}});
  return record;
}

void add_call(FlightRecord& record, long long sequence, std::int64_t start_ms, std::int64_t end_ms,
              const std::string& state = "done", const std::string& name = "all_reduce") {
  RecordedCall call;
  call.number = static_cast<long long>(record.calls.size());
  call.call = name;
  call.op = "sum";
  call.dtype = "f32";
  call.state = state;
  call.sequence = sequence;
  call.bytes = 8;
  call.started = kBegin + start_ms * kMs;
  call.ended = end_ms < 0 ? 0 : kBegin + end_ms * kMs;
  record.calls.push_back(call);
}

Json written() {
  return {{"format", "mccl flight record"},
          {"version", 1},
          {"job", "j"},
          {"rank", 0},
          {"size", 2},
          {"host", "desk"},
          {"pid", 7},
          {"unix_ns", kBegin},
          {"groups",
           {{{"index", 3}, {"name", "world"}, {"id", "ab"}, {"rank", 0}, {"members", {0, 1}}}}},
          {"calls",
           {{{"number", 5},
             {"group", 3},
             {"call", "send"},
             {"dtype", "u8"},
             {"state", "done"},
             {"sequence", 1},
             {"bytes", 8},
             {"peer", 1}}}}};
}

TEST(SightRecord, ReadsARecord) {
  const FlightRecord record = parse_record(written().dump(), "file");
  ASSERT_EQ(record.calls.size(), 1U);
  EXPECT_EQ(record.calls[0].peer, 1);
  EXPECT_EQ(record.calls[0].arrived(), 0);
  EXPECT_EQ(record.groups[record.calls[0].group].name, "world");
}

TEST(SightRecord, LeavesOutCallsOfForgottenGroups) {
  Json json = written();
  json["calls"][0]["group"] = 4;
  EXPECT_THAT(parse_record(json.dump(), "file").calls, IsEmpty());
}

TEST(SightRecord, RefusesADamagedRecord) {
  const std::string text = written().dump();
  for (std::size_t kept : {std::size_t{0}, std::size_t{10}, text.size() / 2, text.size() - 1})
    EXPECT_THROW(parse_record(text.substr(0, kept), "file"), InvalidArgument) << kept;
  const auto refuse = [](const char* pointer, const Json& value) {
    Json json = written();
    json[Json::json_pointer(pointer)] = value;
    try {
      parse_record(json.dump(), "file");
      ADD_FAILURE() << pointer;
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("file: expected a valid"));
    }
  };
  refuse("/version", 2);
  refuse("/format", "another");
  refuse("/rank", 2);
  refuse("/groups/0/members", Json::array());
  refuse("/calls/0/peer", 2);
  refuse("/calls/0/bytes", -1);
  refuse("/calls/0/state", "lost");
  refuse("/calls/0/call", 7);
  refuse("/unix_ns", 1e30);
}

TEST(SightRecord, RefusesRecordsOfTwoJobsOrOfOneRankTwice) {
  FlightRecord other = record_of(1);
  other.job = "k";
  EXPECT_THROW(check_one_job({record_of(0), other}), InvalidArgument);
  EXPECT_THROW(check_one_job({record_of(0), record_of(0)}), InvalidArgument);
  EXPECT_NO_THROW(check_one_job({record_of(0), record_of(1)}));
}

TEST(SightRecord, FindsNothingInRecordsThatAgree) {
  std::vector<FlightRecord> records = {record_of(0), record_of(1)};
  for (FlightRecord& record : records) add_call(record, 1, 10, 20);
  EXPECT_THAT(align(records), IsEmpty());
  EXPECT_THAT(findings(records), IsEmpty());
}

TEST(SightRecord, NamesTheRankThatDidNotMakeACall) {
  std::vector<FlightRecord> records = {record_of(0), record_of(1)};
  for (FlightRecord& record : records) add_call(record, 1, 10, 20);
  add_call(records[0], 2, 30, -1, "running");
  EXPECT_THAT(
      findings(records),
      ElementsAre(
          "Rank 1 did not make call 2 of group 'world', all_reduce (sum of 8 bytes of "
          "f32). Rank 0 waited for it since 2023-11-14 22:13:20.030000 UTC, for 970 ms. "
          "The last call of rank 1 in that group, number 1, was all_reduce (sum of 8 bytes of "
          "f32), which ended at 2023-11-14 22:13:20.020000 UTC."));
  records.pop_back();
  EXPECT_THAT(findings(records),
              ElementsAre(HasSubstr("Rank 1 gave no record, and may not have made call 2")));
}

TEST(SightRecord, DistinguishesAnotherTimeFromAnAbsence) {
  std::vector<FlightRecord> records = {record_of(0), record_of(1)};
  add_call(records[0], 1, 10, -1, "running");
  add_call(records[1], 2, 30, 40);
  EXPECT_THAT(findings(records),
              ElementsAre(HasSubstr("have no collective in common"), HasSubstr("did not end")));
}

TEST(SightRecord, NamesACallThatDoesNotEnd) {
  std::vector<FlightRecord> records = {record_of(0), record_of(1)};
  for (FlightRecord& record : records) add_call(record, 1, 10, -1, "running");
  records[1].calls[0].waits_for = 0;
  EXPECT_THAT(
      findings(records),
      ElementsAre(HasSubstr(
          "did not end on all ranks: rank 0 running, rank 1 running, waiting for rank 0.")));
}

TEST(SightRecord, NamesCallsThatDiffer) {
  std::vector<FlightRecord> records = {record_of(0), record_of(1)};
  add_call(records[0], 1, 10, 20);
  add_call(records[1], 1, 10, 20);
  records[1].calls[0].bytes = 16;
  EXPECT_THAT(
      findings(records),
      ElementsAre(HasSubstr("Call 1 of group 'world' differs: rank 0 called all_reduce (sum "
                            "of 8 bytes of f32), rank 1 called all_reduce (sum of 16 bytes "
                            "of f32), at 2023-11-14")));
}

TEST(SightRecord, NamesTheLinesOfCallsThatDiffer) {
  std::vector<FlightRecord> records = {record_of(0), record_of(1)};
  add_call(records[0], 1, 10, 20, "done", "barrier");
  add_call(records[1], 1, 10, 20);
  records[0].calls[0].site = "train.py:12";
  records[1].calls[0].site = "train.py:15";
  EXPECT_THAT(findings(records),
              ElementsAre(HasSubstr("rank 0 called barrier (sum of 8 bytes of f32) at train.py:12, "
                                    "rank 1 called all_reduce (sum of 8 bytes of f32) at "
                                    "train.py:15, at 2023-11-14")));
}

TEST(SightRecord, ACallOnGpusHasNoEnd) {
  std::vector<FlightRecord> records = {record_of(0), record_of(1)};
  for (FlightRecord& record : records) {
    add_call(record, 1, 10, -1, "enqueued");
    record.calls[0].submitted = std::exchange(record.calls[0].started, 0);
  }
  EXPECT_THAT(findings(records), IsEmpty());
  const Json trace = Json::parse(chrome_trace(records));
  EXPECT_TRUE(std::ranges::any_of(trace["traceEvents"], [](const Json& event) {
    return event["ph"] == "i" && event["name"] == "all_reduce";
  }));
  add_call(records[0], 2, 20, -1, "enqueued");
  EXPECT_THAT(findings(records), ElementsAre(HasSubstr("Rank 1 did not make call 2")));
}

TEST(SightRecord, NamesTheLateRank) {
  std::vector<FlightRecord> records = {record_of(0), record_of(1)};
  for (int i = 1; i <= 3; ++i) {
    add_call(records[0], i, 100 * i, 100 * i + 50);
    add_call(records[1], i, 100 * i + 10 * i, 100 * i + 50);
  }
  EXPECT_THAT(
      findings(records),
      ElementsAre(HasSubstr("Rank 1 came last to 3 of 3 collectives and delayed the other "
                            "ranks by 60 ms in all; the longest delay was 30 ms in call 3")));
}

TEST(SightRecord, CorrectsClocksThatContradictEachOther) {
  std::vector<FlightRecord> records = {record_of(0, "a"), record_of(1, "b")};
  add_call(records[0], 1, 10, 20);
  add_call(records[1], 1, 5010, 5020);
  EXPECT_THAT(align(records), ElementsAre("The clock of b is 4.99 s ahead of that of a; the times "
                                          "in the records of b are corrected."));
  EXPECT_LE(records[1].calls[0].started, records[0].calls[0].ended);
  EXPECT_LE(records[0].calls[0].started, records[1].calls[0].ended);
}

TEST(SightRecord, WritesATraceForChrome) {
  std::vector<FlightRecord> records = {record_of(0), record_of(1)};
  for (FlightRecord& record : records) add_call(record, 1, 10, 20);
  add_call(records[0], 1, 30, -1, "running", "send");
  records[0].calls[0].submitted = kBegin;
  records[1].groups[0].index = 5;  // a number in its process
  const Json trace = Json::parse(chrome_trace(records));
  std::vector<std::string> seen;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == "M") continue;
    EXPECT_EQ(event["tid"], 1);  // the group's row on both ranks
    EXPECT_EQ(event.contains("id2"), event["ph"] != "X");
    seen.push_back(event["ph"].get<std::string>() + " " + event["name"].get<std::string>());
    if (event["ph"] != "X") continue;
    EXPECT_EQ(event["ts"], 10'000);
    EXPECT_EQ(event["dur"], 10'000);
  }
  EXPECT_THAT(seen, ElementsAre("b queued all_reduce", "e queued all_reduce", "X all_reduce",
                                "b send", "e send", "X all_reduce"));
}

}  // namespace
}  // namespace mccl::cli::sight
