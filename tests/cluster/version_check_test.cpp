#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "cluster/checks.h"

namespace mccl::cluster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Versions = std::map<std::string, std::string>;

/// Makes hosts a, b, c, … with these versions.
std::vector<HostFacts> hosts_with(const std::vector<Versions>& versions) {
  std::vector<HostFacts> hosts;
  for (const Versions& each : versions) {
    HostFacts& host = hosts.emplace_back();
    host.host = std::string(1, static_cast<char>('a' + hosts.size() - 1));
    host.system = System::gnu_linux;
    host.versions = each;
  }
  return hosts;
}

std::vector<std::string> texts_of(const std::vector<Finding>& findings) {
  std::vector<std::string> texts;
  for (const Finding& finding : findings)
    texts.push_back(
        fmt::format("{}: {}: {}", name_of(finding.severity), finding.where, finding.what));
  return texts;
}

TEST(CheckVersions, FindsNothingIfAllVersionsAreEqual) {
  const Versions all = {{"mccl", "0.1.0"},  {"torch", "2.11.0"},  {"mlx", "0.32.4"},
                        {"numpy", "2.3.1"}, {"python", "3.12.1"}, {"nvidia-nccl-cu12", "2.27.3"}};
  EXPECT_THAT(check_versions(hosts_with({all, all, all})), IsEmpty());
  EXPECT_THAT(check_versions(hosts_with({all})), IsEmpty());
  EXPECT_THAT(check_versions(hosts_with({{}, {}})), IsEmpty());
  EXPECT_THAT(check_versions({}), IsEmpty());
}

TEST(CheckVersions, FindsEachThatDiffers) {
  for (const char* package : {"torch", "mlx", "mlx-metal", "nvidia-nccl-cu12"}) {
    const auto findings = check_versions(hosts_with({{{package, "1.0"}}, {{package, "1.1"}}}));
    EXPECT_THAT(texts_of(findings),
                ElementsAre(fmt::format("warning: a 1.0, b 1.1: versions of {} differ", package)));
    EXPECT_THAT(findings.at(0).cure, HasSubstr(fmt::format("pip install {}==1.0", package)));
  }
}

TEST(CheckVersions, ReportsMcclAsAProblemAndPythonAsANote) {
  const auto hosts = hosts_with({{{"mccl", "0.1.0"}, {"python", "3.11.2"}},  //
                                 {{"mccl", "0.2.0"}, {"python", "3.12.1"}}});
  EXPECT_THAT(texts_of(check_versions(hosts)),
              ElementsAre("problem: a 0.1.0, b 0.2.0: versions of mccl differ",
                          "note: a 3.11.2, b 3.12.1: versions of python differ"));
}

TEST(CheckVersions, NamesNcclBuildsForDifferentCudaVersions) {
  const auto hosts =
      hosts_with({{{"nvidia-nccl-cu12", "2.27.3"}}, {{"nvidia-nccl-cu13", "2.28.3"}}});
  EXPECT_THAT(texts_of(check_versions(hosts)),
              ElementsAre("warning: a nvidia-nccl-cu12 2.27.3, b nvidia-nccl-cu13 2.28.3: versions "
                          "of nccl differ"));
}

TEST(CheckVersions, FindsTorchThatOneHostLacks) {
  const auto hosts =
      hosts_with({{{"torch", "2.11.0"}}, {{"python", "3.12.1"}}, {{"torch", "2.11.0"}}});
  const auto findings = check_versions(hosts);
  EXPECT_THAT(texts_of(findings),
              ElementsAre("warning: b: torch is not installed, but 2 of 3 hosts have it"));
  EXPECT_THAT(findings.at(0).cure, HasSubstr("pip install torch==2.11.0"));
}

TEST(CheckVersions, ComparesMlxBetweenHostsOfOneSystem) {
  auto hosts = hosts_with({{{"mlx", "0.32.4"}}, {}, {}});
  hosts[0].system = hosts[1].system = System::macos;
  EXPECT_THAT(texts_of(check_versions(hosts)),
              ElementsAre("warning: b: mlx is not installed, but 1 of 3 hosts has it"));
}

TEST(CheckVersions, ComparesNcclBetweenHostsWithGpus) {
  auto hosts = hosts_with({{{"nvidia-nccl-cu12", "2.27.3"}}, {}, {}});
  hosts[2].gpus.resize(1);
  EXPECT_THAT(texts_of(check_versions(hosts)),
              ElementsAre("warning: c: nccl is not installed, but 1 of 3 hosts has it"));
}

TEST(CheckVersions, TreatsAnUnreadableVersionAsAbsent) {
  // The parser of the facts already reports an unreadable version.
  EXPECT_THAT(check_versions(hosts_with({{{"torch", "2.11.0"}}, {{"torch", ""}}})), IsEmpty());
}

}  // namespace
}  // namespace mccl::cluster
