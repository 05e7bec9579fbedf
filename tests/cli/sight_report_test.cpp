// The reports of mccl status.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <limits>

#include "cli/sight/report.h"
#include "cli/sight/survey.h"
#include "mccl/error.h"
#include "node/local_socket.h"

namespace mccl::cli::sight {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kStatus = R"json({"format": "mccl status", "version": 1, "mccl": "0.1.0",
 "job": "j", "rank": 0, "size": 3, "host": "desk", "pid": 40, "calls": 12, "errors": 1,
 "bytes_sent": 5, "bytes_received": 6, "answers": true,
 "groups": [{"name": "pair", "id": "ab", "rank": 1, "members": [2, 0], "last": "barrier #4",
   "failure": "", "more_pending": 0,
   "pending": [{"call": "all_reduce #5 (sum of 2 f32)", "sequence": 5, "state": "running",
     "waited_s": 20.5, "waits_for": [0], "why": ", waiting for rank 0"}]}],
 "peers": [{"rank": 1, "transport": "shm", "state": "connected", "reason": "",
            "bytes_sent": 7, "bytes_received": 8},
           {"rank": 2, "transport": "tcp", "state": "connected", "reason": "",
            "bytes_sent": 9, "bytes_received": 10}]})json";

std::string with(std::string text, const std::string& old, const std::string& now) {
  const std::size_t at = text.find(old);
  EXPECT_NE(at, text.npos) << old;
  return text.replace(at, old.size(), now);
}

RankReport rank_of(int rank) {
  RankReport report = parse_status(kStatus, "rank");
  report.rank = rank;
  report.pid = 40 + rank;
  report.groups.front().pending.clear();
  return report;
}

TEST(SightReport, ReadsAStatus) {
  const RankReport rank = parse_status(kStatus, "rank 0");
  EXPECT_EQ(rank.pid, 40);
  EXPECT_EQ(rank.errors, 1);
  EXPECT_EQ(rank.trouble, "");
  ASSERT_EQ(rank.groups.size(), 1U);
  EXPECT_THAT(rank.groups[0].members, ElementsAre(2, 0));
  EXPECT_EQ(rank.groups[0].pending[0].waited_s, 20.5);
  EXPECT_EQ(rank.peers[1].state, "connected");
}

TEST(SightReport, RefusesADamagedStatus) {
  const std::pair<const char*, const char*> damages[] = {
      {"\"version\": 1", "\"version\": 2"},
      {"\"pid\": 40", "\"pid\": -1"},
      {"\"rank\": 0", "\"rank\": 3"},
      {"[0]", "[2]"},
      {"\"desk\"", "7"},
      {"20.5", "\"20.5\""},
      {"[2, 0]", "[2.5, 0]"},
      {"\"calls\": 12,", ""},
      {"\"errors\": 1", "\"errors\": 18446744073709551615"}};
  for (const auto& [old, now] : damages)
    EXPECT_THROW(parse_status(with(kStatus, old, now), "rank 0"), InvalidArgument) << now;
  for (const std::size_t kept : {0, 1, 100, 600})
    EXPECT_THROW(parse_status(std::string(kStatus, kept), "rank 0"), InvalidArgument);
}

TEST(SightReport, AShortWaitIsHealthy) {
  const std::vector<JobReport> jobs = assess({parse_status(kStatus, "rank 0"), rank_of(1)}, 30);
  ASSERT_EQ(jobs.size(), 1U);
  EXPECT_EQ(jobs[0].health, Health::healthy);
  EXPECT_THAT(jobs[0].findings, IsEmpty());
  const std::string text = to_text(jobs[0]);
  EXPECT_THAT(text, HasSubstr("20.5 s for rank 2"));
  EXPECT_THAT(text, HasSubstr("connected, according to rank 0"));
  EXPECT_THAT(text, HasSubstr("\nhealthy\n"));
}

TEST(SightReport, ALongWaitNamesTheRankThatIsLateAndItsProcess) {
  const std::vector<JobReport> jobs = assess({rank_of(2), parse_status(kStatus, "rank 0")}, 20);
  EXPECT_EQ(jobs[0].health, Health::stuck);
  EXPECT_THAT(
      jobs[0].findings,
      ElementsAre("rank 0 has waited 20.5 s in all_reduce #5 (sum of 2 f32) of group "
                  "'pair' for rank 2 (process 42 has made no call in that group since barrier "
                  "#4)"));
}

TEST(SightReport, NamesTheHostOfARankElsewhere) {
  RankReport far = rank_of(2);
  far.host = "mac";
  const std::vector<JobReport> jobs = assess({far, parse_status(kStatus, "rank 0")}, 20);
  EXPECT_THAT(jobs[0].findings.front(), HasSubstr("for rank 2 (process 42 on mac has made"));
  EXPECT_THAT(to_text(jobs[0]), HasSubstr("3 ranks on 2 hosts"));
}

TEST(SightSurvey, ReadsWhatARankSaysOfTheOthers) {
  const auto others = [](const std::string& ranks) {
    return read_others(R"({"format": "mccl others", "version": 1, "ranks": [)" + ranks + "]}",
                       "rank 9", std::vector<int>{7});
  };
  const std::string report = nlohmann::json(kStatus).dump();
  EXPECT_TRUE(others(R"({"rank": 7, "report": ""})").empty());
  EXPECT_THAT(others(R"({"rank": 1, "report": ""})")[0].trouble, HasSubstr("does not answer"));
  EXPECT_EQ(others(R"({"rank": 0, "report": )" + report + "}")[0].pid, 40);
  EXPECT_THAT(others(R"({"rank": 1, "report": )" + report + "}")[0].trouble,
              HasSubstr("reports that it is rank 0"));
  EXPECT_THAT(others(R"({"rank": 1, "report": "{[["})")[0].trouble, HasSubstr("cannot be read"));
  for (const char* damaged : {"7", R"({"rank": 1})", R"({"rank": 1, "report": 3})",
                              R"({"rank": -1, "report": ""})", R"({"report": ""})"})
    EXPECT_THROW(others(damaged), InvalidArgument) << damaged;
}

TEST(SightReport, DescribesARankThatSentNoReportAsTheRankThatWaitsSeesIt) {
  const std::vector<JobReport> jobs = assess({parse_status(kStatus, "rank 0")}, 20);
  EXPECT_THAT(jobs[0].findings.front(), HasSubstr("for rank 2, waiting for rank 0"));
}

TEST(SightReport, FindsFailuresLossesAndSilence) {
  const std::string failed = with(kStatus, "\"failure\": \"\"", "\"failure\": \"it was aborted\"");
  EXPECT_EQ(assess({parse_status(failed, "")}, 100)[0].health, Health::failed);
  const std::string lost = with(kStatus, "\"connected\", \"reason\": \"\"",
                                "\"lost\", \"reason\": \"its process has ended\"");
  const JobReport job = assess({parse_status(lost, "")}, 100)[0];
  EXPECT_EQ(job.health, Health::failed);
  EXPECT_THAT(job.findings, ElementsAre("rank 0 has lost rank 1: its process has ended"));
  const std::string silent = with(kStatus, "connected", "silent");
  EXPECT_EQ(assess({parse_status(silent, "")}, 100)[0].health, Health::stuck);
  const std::string blocked = with(kStatus, "\"answers\": true", "\"answers\": false");
  EXPECT_EQ(assess({parse_status(blocked, "")}, 100)[0].health, Health::stuck);
}

TEST(SightReport, KeepsALongReason) {
  const std::string reason(1000, 'x');
  const std::string text = with(kStatus, "\"failure\": \"", "\"failure\": \"" + reason + "\\u001b");
  const JobReport job = assess({parse_status(text, "")}, 100)[0];
  EXPECT_THAT(job.findings, ElementsAre("group 'pair' has failed: " + reason + "\\x1b"));
}

TEST(SightReport, SeparatesJobs) {
  RankReport other = rank_of(1);
  other.job = "k";
  EXPECT_EQ(assess({rank_of(0), other, rank_of(2)}, 1).size(), 2U);
}

TEST(SightAttach, ReadsOnlyNamesThatRanksGive) {
  const auto socket = parse_socket_name("/f", "123-45-0123abcd");
  ASSERT_TRUE(socket);
  EXPECT_EQ(socket->pid, 123);
  EXPECT_EQ(socket->rank, 45);
  EXPECT_EQ(socket->job, "0123abcd");
  EXPECT_EQ(socket->path, "/f/123-45-0123abcd");
  for (const char* name :
       {"", "1-2", "0-1-0123abcd", "1-2-0123abcde", "1-2-0123abcg", "-1-2-0123abcd",
        "1--2-0123abcd", "99999999999-1-0123abcd", "1-2-../../a", "x-1-0123abcd"})
    EXPECT_FALSE(parse_socket_name("/f", name)) << name;
}

TEST(SightAttach, KeepsTheSocketOfAProcessThatAnotherContainerRuns) {
  // No process of this container has the number.
  const std::string path =
      fmt::format("{}/{}-0-0123abcd", node::make_status_folder(), std::numeric_limits<int>::max());
  node::LocalListener listener(path, 1);
  EXPECT_EQ(ranks_of(std::numeric_limits<int>::max()).size(), 1U);
  EXPECT_TRUE(std::filesystem::exists(path));
  listener.abandon();
  EXPECT_THROW(ranks_of(std::numeric_limits<int>::max()), InvalidArgument);
  EXPECT_TRUE(std::filesystem::exists(path)) << "its process may not listen yet";
  std::filesystem::last_write_time(
      path, std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_THROW(ranks_of(std::numeric_limits<int>::max()), InvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace mccl::cli::sight
