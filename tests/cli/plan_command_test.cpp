#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/command.h"
#include "mccl/error.h"

namespace mccl::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Said {
  int status = kGood;
  std::string text;
};

/// Runs `mccl plan` with these arguments. Errors in the arguments are thrown.
Said plan(const std::string& arguments) {
  CLI::App program{"", "mccl"};
  const Command command = plan::add(program);
  program.parse("plan " + arguments);
  ::testing::internal::CaptureStdout();
  Said said;
  try {
    said.status = command.run();
  } catch (...) {
    ::testing::internal::GetCapturedStdout();
    throw;
  }
  said.text = ::testing::internal::GetCapturedStdout();
  return said;
}

std::string refusal(const std::string& arguments) {
  try {
    plan(arguments);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing";
}

class TemporaryFile {
 public:
  TemporaryFile()
      : path_(std::filesystem::temp_directory_path() /
              ("mccl_plan_test." + std::to_string(::getpid()))) {}
  ~TemporaryFile() { std::filesystem::remove(path_); }
  std::string path() const { return path_.string(); }
  nlohmann::json read() const { return nlohmann::json::parse(std::ifstream(path_)); }

 private:
  std::filesystem::path path_;
};

TEST(Plan, PrintsTheFactsAndARowForEachSize) {
  const Said said = plan("all_reduce,broadcast --ranks 4 --sizes 8,1M --cores 2");
  EXPECT_EQ(said.status, kGood);
  EXPECT_THAT(said.text, HasSubstr("4 ranks on 1 node, f32, algorithm auto"));
  EXPECT_THAT(said.text, HasSubstr("ranks_per_core                   2"));
  EXPECT_THAT(said.text, HasSubstr("# all_reduce\n"));
  EXPECT_THAT(said.text, HasSubstr("# broadcast\n"));
  EXPECT_THAT(said.text, HasSubstr("    1048576      262144  two_shot"));
}

TEST(Plan, LinksAreAsGiven) {
  const std::string base = "all_gather --ranks 16 --ranks-per-node 4 --sizes 64M ";
  const std::string fast = plan(base + "--link-rate 100Gbit --link-latency 2us").text;
  EXPECT_THAT(fast, HasSubstr("16 ranks on 4 nodes"));
  EXPECT_THAT(fast, HasSubstr("12.5 GB/s"));
  EXPECT_NE(fast, plan(base + "--link-rate 1Gbit --link-latency 2us").text);
  EXPECT_THAT(plan("--ranks 16 --nodes 4").text, HasSubstr("16 ranks on 4 nodes"));
}

TEST(Plan, WithoutAWindowNothingIsShared) {
  const std::string text = plan("--ranks 4 --window 0 --sizes 1M --compare").text;
  EXPECT_THAT(text, HasSubstr("4 ranks on 4 nodes"));
  EXPECT_THAT(text, Not(HasSubstr("two_shot")));
}

TEST(Plan, MarksCheaperAlgorithmsThatWereNotChosen) {
  const std::string text = plan("--ranks 4 --cores 2 --sizes 8 --compare").text;
  EXPECT_THAT(text, HasSubstr("left out  direct"));
  EXPECT_THAT(text, HasSubstr("chosen  one_shot"));
}

TEST(Plan, SumsInACodecAreFewerBytesBetweenNodes) {
  const std::string sum = "--ranks 3 --nodes 3 --sizes 1M,8 ";
  EXPECT_THAT(plan(sum).text, HasSubstr("1398272   1398272"));
  const std::string coded = plan(sum + "--compression int8").text;
  EXPECT_THAT(coded, HasSubstr("compression int8"));
  EXPECT_THAT(coded, HasSubstr("360492    360492"));
  EXPECT_THAT(plan("--ranks 3 --sizes 1M --compression int8").text, HasSubstr("compression none"));
  EXPECT_THROW(plan(sum + "--compression int9"), InvalidArgument);
}

TEST(Plan, AutoRoundsOnSlowLinks) {
  const std::string sum = "--ranks 4 --nodes 2 --sizes 64M --compression auto --link-rate ";
  EXPECT_THAT(plan(sum + "1Gbit").text, HasSubstr("in bf16, which is predicted to be faster"));
  EXPECT_THAT(plan(sum + "400Gbit").text, HasSubstr("exact: bf16 would not be faster"));
  EXPECT_THAT(plan(sum + "1Gbit --dtype f64").text, HasSubstr("exact"));
}

TEST(Plan, ReportsUnsupportedCallsOfAnAlgorithm) {
  EXPECT_THAT(plan("barrier --ranks 2 --algorithm chain").text,
              HasSubstr("chain does not support this"));
}

TEST(Plan, TheFileMatchesTheOutput) {
  const TemporaryFile file;
  plan("all_reduce barrier --ranks 8 --nodes 8 --sizes 1M --compare --json " + file.path());
  const nlohmann::json json = file.read();
  EXPECT_EQ(json["ranks"], 8);
  EXPECT_EQ(json["costs"]["latency_s"], 15e-6);
  ASSERT_EQ(json["rows"].size(), 2U);
  EXPECT_EQ(json["rows"][0]["bytes"], 1 << 20);
  EXPECT_EQ(json["rows"][0]["algorithm"], json["rows"][0]["alternatives"][0]["algorithm"]);
  EXPECT_GT(json["rows"][0]["sent_bytes"].get<double>(), 0);
  EXPECT_TRUE(json["rows"][1]["algbw"].is_null());
}

TEST(Plan, ReportsInvalidArguments) {
  EXPECT_THAT(refusal("all_reduces"), HasSubstr("did you mean all_reduce"));
  EXPECT_THAT(refusal("sendrecv"), HasSubstr("sendrecv is not a collective"));
  EXPECT_THAT(refusal("--ranks 0"), HasSubstr("--ranks"));
  EXPECT_THAT(refusal("--ranks 4097"), HasSubstr("--ranks"));
  EXPECT_THAT(refusal("--ranks 4 --nodes 5"), HasSubstr("--nodes 5"));
  EXPECT_THAT(refusal("--ranks 5 --nodes 4"), HasSubstr("--ranks-per-node"));
  EXPECT_THAT(refusal("--ranks 4 --nodes 2 --ranks-per-node 2"), HasSubstr("excludes"));
  EXPECT_THAT(refusal("--link-rate 10Gbit"), HasSubstr("only one node"));
  EXPECT_THAT(refusal("--nodes 2 --link-rate 10"), HasSubstr("--link-rate: \"10\""));
  EXPECT_THAT(refusal("--nodes 2 --link-latency 15"), HasSubstr("--link-latency"));
  EXPECT_THAT(refusal("--root 2"), HasSubstr("--root 2"));
  EXPECT_THAT(refusal("--dtype f31"), HasSubstr("did you mean"));
  EXPECT_THAT(refusal("--op band"), HasSubstr("not defined for"));
  EXPECT_THAT(refusal("--algorithm rings"), HasSubstr("did you mean ring"));
  EXPECT_THAT(refusal("foo"), Not(HasSubstr("sendrecv")));
  EXPECT_THAT(refusal("--window 1X"), HasSubstr("--window: expected bytes"));
  EXPECT_THAT(refusal("--fact window_bytes=1X"), HasSubstr("--fact window_bytes: expected bytes"));
  EXPECT_THAT(refusal("--links /no/such/file"), HasSubstr("--links: cannot read"));
  EXPECT_THAT(refusal("--json /no/such/folder/file"), HasSubstr("--json"));
  EXPECT_THAT(refusal("--within 3"), HasSubstr("--check"));
  EXPECT_THAT(refusal("--check /no/such/file"), HasSubstr("/no/such/file"));
  EXPECT_THAT(refusal("--check file --ranks 4"), HasSubstr("leave out --ranks"));
}

TEST(Plan, CabledMachinesHaveARankEach) {
  const TemporaryFile cables;
  std::ofstream(cables.path()) << R"([{"between": [0, 1]}, {"between": [1, 2]}])";
  const std::string said = plan("--ranks 3 --cores 1 --links " + cables.path()).text;
  EXPECT_THAT(said, HasSubstr("3 ranks on 3 nodes"));
  EXPECT_THAT(said, ::testing::ContainsRegex("ranks_per_core +1 "));
  EXPECT_THAT(plan("--ranks 3 --cores 1").text, ::testing::ContainsRegex("ranks_per_core +3 "));
}

}  // namespace
}  // namespace mccl::cli
