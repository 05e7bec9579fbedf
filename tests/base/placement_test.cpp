#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "expect_refusal.h"
#include "mccl/meeting.h"

namespace mccl {
namespace {

using test::refusal;
using ::testing::HasSubstr;
using Environment = std::map<std::string, std::string>;

const Environment kTorchrun = {{"RANK", "3"},
                               {"WORLD_SIZE", "8"},
                               {"LOCAL_RANK", "1"},
                               {"MASTER_ADDR", "10.0.0.7"},
                               {"MASTER_PORT", "29500"}};
const Environment kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                              {"OMPI_COMM_WORLD_SIZE", "2"},
                              {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                              {"PMIX_NAMESPACE", "562692097"}};
const Environment kMpich = {{"PMI_RANK", "2"},
                            {"PMI_SIZE", "4"},
                            {"PMI_FD", "6"},
                            {"MPI_LOCALNRANKS", "2"},
                            {"MPI_LOCALRANKID", "0"}};
const Environment kSlurm = {{"SLURM_PROCID", "5"},          {"SLURM_STEP_NUM_TASKS", "6"},
                            {"SLURM_LOCALID", "1"},         {"SLURM_STEP_NODELIST", "n[08-10],big"},
                            {"SLURM_JOB_ID", "77"},         {"SLURM_STEP_ID", "0"},
                            {"SLURM_JOB_NODELIST", "other"}};

Config config_with(int rank, int size, const std::string& root) {
  Config config;
  config.rank = rank;
  config.world_size = size;
  config.root = root;
  return config;
}

Environment merged(Environment a, const Environment& b) {
  a.insert(b.begin(), b.end());
  return a;
}

Environment without(Environment environment, const std::string& name) {
  environment.erase(name);
  return environment;
}

std::string why_not(const Environment& environment, const Config& config = {}) {
  return refusal([&] { find_placement(config, environment); });
}

TEST(Placement, NeedsNoMeetingPointWhereMpiHasOne) {
  Config config;
  config.backend = "mpi";
  Environment two_hosts = kOpenMpi;
  two_hosts["OMPI_COMM_WORLD_LOCAL_SIZE"] = "1";
  EXPECT_THAT(why_not(two_hosts), HasSubstr("MCCL_ROOT"));
  EXPECT_EQ(find_placement(config, two_hosts)->root, "");
  // hydra answers on this descriptor only once, and MPI needs the answer.
  EXPECT_EQ(find_placement(config, kMpich)->pmi, -1);
  config.rank = 1;
  config.world_size = 2;
  EXPECT_EQ(find_placement(config, {})->rank, 1);
}

TEST(Placement, IsEmptyWithoutALauncher) {
  EXPECT_FALSE(find_placement({}, {{"PATH", "/bin"}, {"MASTER_PORT", "1"}}));
}

TEST(Placement, PrefersTheSettings) {
  const auto found = find_placement(config_with(1, 2, "h:1"), kTorchrun);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 1);
  EXPECT_EQ(found->root, "h:1");
  EXPECT_EQ(found->found_by, "MCCL");
}

TEST(Placement, OfTorchrunMeetsBesideTorchsStore) {
  const auto found = find_placement({}, kTorchrun);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 3);
  EXPECT_EQ(found->size, 8);
  EXPECT_EQ(found->local_rank, 1);
  EXPECT_THAT(found->root, ::testing::StartsWith("10.0.0.7:"));
  EXPECT_NE(found->root, "10.0.0.7:29500");
}

TEST(Placement, OfOpenMpiOnOneHostMeetsByTheNameOfTheJob) {
  const auto found = find_placement({}, kOpenMpi);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 1);
  EXPECT_TRUE(found->one_host);
  Environment other = kOpenMpi;
  other["PMIX_NAMESPACE"] = "562692098";
  EXPECT_NE(find_placement({}, other)->root, found->root);
}

TEST(Placement, OfOpenMpiOnSeveralHostsNeedsARoot) {
  Environment spread = kOpenMpi;
  spread["OMPI_COMM_WORLD_LOCAL_SIZE"] = "1";
  EXPECT_THAT(why_not(spread), HasSubstr("mpirun -x MCCL_ROOT="));
  EXPECT_EQ(find_placement(config_with(-1, -1, "h:1"), spread)->root, "h:1");
}

TEST(Placement, OfMpichAsksItsLauncherUnlessThereIsARoot) {
  EXPECT_EQ(find_placement({}, kMpich)->pmi, 6);
  const auto found = find_placement(config_with(-1, -1, "h:1"), kMpich);
  EXPECT_EQ(found->pmi, -1);
  EXPECT_EQ(found->root, "h:1");
}

TEST(Placement, OfSlurmMeetsOnTheFirstNodeOfTheStep) {
  const auto found = find_placement({}, kSlurm);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 5);
  EXPECT_THAT(found->root, ::testing::StartsWith("n08:"));
  Environment next = kSlurm;
  next["SLURM_STEP_ID"] = "1";
  EXPECT_NE(find_placement({}, next)->root, found->root);
  next["SLURM_STEP_NODELIST"] = "n08";
  EXPECT_THAT(find_placement({}, next)->root, ::testing::StartsWith("127.0.0.1:"));
}

TEST(Placement, TheScriptOfABatchJobIsNotARank) {
  EXPECT_FALSE(find_placement({}, without(kSlurm, "SLURM_STEP_ID")));
}

TEST(Placement, OfMlxUsesTheMeetingAddressOfItsNccl) {
  const Environment mlx = {{"MLX_RANK", "1"},
                           {"MLX_WORLD_SIZE", "4"},
                           {"NCCL_HOST_IP", "10.0.0.7"},
                           {"NCCL_PORT", "12345"}};
  const auto found = find_placement({}, mlx);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 1);
  EXPECT_EQ(found->size, 4);
  EXPECT_EQ(found->root, "10.0.0.7:12345");
  EXPECT_EQ(found->found_by, "mlx.launch");
  Config config;
  config.root = "10.0.0.8:1";
  EXPECT_EQ(find_placement(config, mlx)->root, "10.0.0.8:1");
  EXPECT_EQ(find_placement({}, merged(kTorchrun, mlx))->found_by, "torchrun");
  for (const auto& [name, value] : mlx)
    EXPECT_FALSE(find_placement({}, without(mlx, name))) << name;
  Environment wrong = mlx;
  wrong["NCCL_PORT"] = "70000";
  EXPECT_THAT(why_not(wrong), HasSubstr("NCCL_PORT: expected an integer from 1 to 65535"));
  wrong = mlx;
  wrong["MLX_RANK"] = "4";
  EXPECT_THAT(why_not(wrong), HasSubstr("rank 4, as set by mlx.launch, is outside 0 to 3"));
}

TEST(Placement, IgnoresSlurmVariablesInheritedByMpiRanks) {
  EXPECT_EQ(find_placement({}, merged(kOpenMpi, kSlurm))->found_by, "Open MPI");
  EXPECT_EQ(find_placement({}, merged(kMpich, kSlurm))->found_by, "MPICH");
}

TEST(Placement, ACompleteLauncherTakesPrecedenceOverAnIncompleteOne) {
  EXPECT_EQ(find_placement({}, merged(without(kTorchrun, "RANK"), kSlurm))->found_by, "Slurm");
}

TEST(Placement, AnIncompleteLauncherIsRefusedWithItsFoundAndMissingVariables) {
  for (const Environment& whole : {kTorchrun, kOpenMpi, kSlurm, kMpich}) {
    for (const auto& [name, value] : whole) {
      if (name == "LOCAL_RANK" || name == "SLURM_LOCALID" || name == "SLURM_JOB_NODELIST") continue;
      // These variables identify the launcher.
      if (name == "SLURM_PROCID" || name == "SLURM_STEP_ID" || name == "PMI_RANK" ||
          name == "MPI_LOCALNRANKS")
        continue;
      const std::string why = why_not(without(whole, name));
      const std::string said = name == "PMIX_NAMESPACE" ? "OMPI_MCA_ess_base_jobid" : name;
      EXPECT_THAT(why, HasSubstr("without " + said)) << name;
    }
  }
  EXPECT_THAT(why_not({}, config_with(1, -1, "")), HasSubstr("MCCL_WORLD_SIZE is not"));
  EXPECT_THAT(why_not({}, config_with(1, 2, "")), HasSubstr("MCCL_ROOT is not set"));
  EXPECT_THAT(why_not({}, config_with(2, 2, "h:1")),
              HasSubstr("is outside 0 to 1: MCCL_RANK is 2 and MCCL_WORLD_SIZE is 2"));
}

TEST(Placement, RefusesInvalidValues) {
  for (const char* value : {"-1", "x", "99999999999", "8"}) {
    Environment wrong = kTorchrun;
    wrong["RANK"] = value;
    EXPECT_THAT(why_not(wrong), HasSubstr(value));
  }
}

TEST(Placement, DerivedPortsLieBelowTheEphemeralRange) {
  std::set<int> ports;
  for (int job = 0; job < 1000; ++job) {
    Environment torchrun = kTorchrun;
    torchrun["MASTER_ADDR"] = "host" + std::to_string(job);
    const std::string root = find_placement({}, torchrun)->root;
    const int port = std::stoi(root.substr(root.rfind(':') + 1));
    EXPECT_GE(port, 20000);
    EXPECT_LT(port, 28192);
    ports.insert(port);
  }
  EXPECT_GT(ports.size(), 900U);
}

TEST(Placement, ARootAloneIsIncomplete) {
  const Config config = config_with(-1, -1, "h:1");
  EXPECT_THAT(why_not({{"MASTER_ADDR", "h"}}, config),
              HasSubstr("MCCL_ROOT is set, but neither MCCL_RANK nor MCCL_WORLD_SIZE is"));
  EXPECT_EQ(find_placement(config, kTorchrun)->root, "h:1");
  // MLX's own variables describe a job of MLX's ring, not of MCCL.
  EXPECT_FALSE(find_placement(config, {{"MLX_RANK", "0"}, {"MLX_HOSTFILE", "hosts.json"}}));
  Config by_mpi = config;
  by_mpi.backend = "mpi";
  EXPECT_FALSE(find_placement(by_mpi, {}));
}

}  // namespace
}  // namespace mccl
