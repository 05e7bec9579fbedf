#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/doctor/report.h"

namespace mccl::cli::doctor {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;

std::vector<std::string> names_of(const std::vector<SelftestCase>& trials) {
  std::vector<std::string> names;
  for (const SelftestCase& trial : trials) names.push_back(trial.name);
  return names;
}

ThisMachine machine() {
  return {.program = "/bin/mccl", .python = "/bin/python3", .cores = 4, .rdma_gbs = {}};
}

cluster::HostFacts with_devices(const std::vector<std::string>& states) {
  cluster::HostFacts facts;
  for (const std::string& state : states) {
    cluster::RdmaDevice& device = facts.rdma.emplace_back();
    device.state = state;
    device.mbit_per_s = 100'000;
  }
  return facts;
}

TEST(SelftestTrials, CoverEveryTransportAndFramework) {
  EXPECT_THAT(names_of(selftest_cases(machine(), {}, "/tmp")),
              ElementsAre("shm, 2 ranks", "shm, 4 ranks", "tcp, 2 ranks", "tcp, 4 ranks", "NumPy",
                          "torch", "torch on GPUs", "MLX"));
  ThisMachine small = machine();
  small.cores = 1;
  small.python.clear();
  EXPECT_THAT(names_of(selftest_cases(small, {}, "/tmp")),
              ElementsAre("shm, 2 ranks", "tcp, 2 ranks"));
}

TEST(SelftestTrials, IncludeRdmaIfThereAreDevices) {
  ThisMachine with = machine();
  with.rdma_gbs = 12.5;
  const auto trials = selftest_cases(with, {}, "/tmp");
  ASSERT_THAT(names_of(trials), Contains("rdma, 2 ranks"));
  const SelftestCase& rdma = trials.at(4);
  EXPECT_THAT(rdma.argv, IsSupersetOf({"bench", "all", "--transport", "rdma"}));
  EXPECT_EQ(rdma.bound_gbs, 12.5);
}

TEST(SelftestTrials, IncludeAllHostsOverRdmaIfAllHaveIt) {
  Others others{.flags = {"--hosts", "a,b"},
                .programs = {"/a/mccl", "/b/mccl"},
                .bound_gbs = 1,
                .rdma_gbs = {}};
  EXPECT_THAT(names_of(selftest_cases(machine(), others, "/tmp")),
              AllOf(Contains("all hosts"), Not(Contains("all hosts, rdma"))));
  others.rdma_gbs = 0;  // unknown, as on Macs
  const auto trials = selftest_cases(machine(), others, "/tmp");
  EXPECT_EQ(trials.back().name, "all hosts, rdma");
  EXPECT_THAT(trials.back().argv, Contains(HasSubstr("--transport rdma")));
}

TEST(SelftestTrials, RunOnEachHostOnlyTheProgramThatItHasReported) {
  const Others others{.flags = {"--hosts", "a,b"},
                      .programs = {"/a/mccl", "/b/mccl"},
                      .bound_gbs = 1,
                      .rdma_gbs = {}};
  const std::vector<std::string> argv = selftest_cases(machine(), others, "/tmp").back().argv;
  ASSERT_GT(argv.size(), 4U);
  EXPECT_THAT(std::vector(argv.end() - 3, argv.end()), ElementsAre("sh", "/a/mccl", "/b/mccl"));
  const std::string& script = *(argv.end() - 4);
  EXPECT_THAT(script, HasSubstr("shift \"$MCCL_RANK\"\nfor m in \"$1\" /bin/mccl; do"));
}

TEST(RdmaRate, CountsActivePortsOnly) {
  EXPECT_EQ(rdma_gbs_of(with_devices({})), std::nullopt);
  EXPECT_EQ(rdma_gbs_of(with_devices({"DOWN"})), std::nullopt);
  EXPECT_EQ(rdma_gbs_of(with_devices({"ACTIVE", "DOWN", "ACTIVE"})), 25);
  EXPECT_EQ(rdma_gbs_of(with_devices({""})), 12.5);  // macOS reports no state
}

/// Another host may send any JSON.
TEST(SelftestResults, InvalidValuesCountAsMissing) {
  const SelftestCase trial{.name = "t", .argv = {}, .result_file = ""};
  for (const char* result : {"7", R"({"rows": 7})", R"({"rows": {"a": 1}})", R"({"transport": 7})"})
    EXPECT_THAT(figures_of(trial, nlohmann::json::parse(result)), IsEmpty()) << result;
  const auto odd = R"({"transport": 7, "rows": [1, null, {"collective": 8, "bytes": "x"}]})";
  EXPECT_THAT(figures_of(trial, nlohmann::json::parse(odd)),
              Contains(ElementsAre("t", "", "0", "0.0 us", "-", "-", "0")));
}

TEST(SelftestResults, EndAtADeepNesting) {
  const std::string deep(100'000, '[');
  std::string output =
      "[0] mccl-selftest-result\n[0] " + deep + std::string(deep.size(), ']') + "\n";
  EXPECT_TRUE(result_in(output).is_null());
  output = "[0] x\n[0] mccl-selftest-result\n[0] {\"rows\": []}\n";
  EXPECT_TRUE(result_in(output).is_object());
  EXPECT_EQ(output, "[0] x\n");
}

}  // namespace
}  // namespace mccl::cli::doctor
