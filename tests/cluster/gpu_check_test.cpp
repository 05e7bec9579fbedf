// Tests parsing real output of nvidia-smi, and the findings about GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/checks.h"

namespace mccl::cluster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr const char* kLegend =
    "\nLegend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe as well as the SMP "
    "interconnect "
    "between NUMA nodes (e.g., QPI/UPI)\n  NV#  = Connection traversing a bonded set of # "
    "NVLinks\n";
constexpr const char* kHead = "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\x1b[0m\n";

HostFacts two_gpus() {
  HostFacts facts;
  facts.host = "h";
  facts.gpus.resize(2);
  return facts;
}

std::string links_of(const std::string& word) {
  return kHead + ("GPU0\t X \t" + word + "\tPHB\t0-31\t0\n") + "GPU1\t" + word +
         "\t X \tSYS\t32-63\t1\nNIC0\tPHB\tSYS\t X \n" + kLegend;
}

std::string peers_of(const std::string& word) {
  return " \tGPU0\tGPU1\t\n GPU0\tX\t" + word + "\t\n GPU1\t" + word +
         "\tX\t\n\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n  CNS  = Chipset not supported\n";
}

TEST(GpuMatrix, SkipsColoursAndLegend) {
  EXPECT_THAT(gpu_matrix(links_of("NV18"), 2),
              ElementsAre(ElementsAre("X", "NV18"), ElementsAre("NV18", "X")));
  EXPECT_THAT(gpu_matrix(peers_of("OK"), 2),
              ElementsAre(ElementsAre("X", "OK"), ElementsAre("OK", "X")));
}

TEST(GpuMatrix, RefusesAnIncompleteMatrix) {
  for (const char* text :
       {"", "GPU0 X NV1\n", "GPU0\nGPU1\n", "GPU9 X X\nGPU-1 X X\n", "GPU0 X\x1b"})
    EXPECT_THAT(gpu_matrix(text, 2), IsEmpty()) << text;
}

TEST(CheckGpus, FindsNothingIfNvlinkConnectsThem) {
  HostFacts facts = two_gpus();
  facts.gpu_links = links_of("NV18");
  facts.gpu_peers = peers_of("OK");
  EXPECT_THAT(check_gpus(facts), IsEmpty());
}

TEST(CheckGpus, IgnoresTheLegendOfTheMatrix) {
  HostFacts facts = two_gpus();
  facts.gpu_links = links_of("PHB");
  const auto findings = check_gpus(facts);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].what, "no NVLink joins the 2 GPUs of this host");
}

TEST(CheckGpus, FindsPeersThatCannotReadEachOther) {
  HostFacts facts = two_gpus();
  facts.gpu_peers = peers_of("CNS");
  const auto findings = check_gpus(facts);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].severity, Severity::warning);
  EXPECT_EQ(findings[0].where, "h (GPUs 0 and 1)");
  EXPECT_THAT(findings[0].what, HasSubstr("the chipset does not support peer access"));
  facts.gpu_peers = peers_of("GNS");
  EXPECT_EQ(check_gpus(facts).at(0).severity, Severity::note);
}

}  // namespace
}  // namespace mccl::cluster
