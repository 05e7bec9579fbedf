// Tests which MPI library a process loads and which it refuses, given an environment.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/mpi/finder.h"
#include "mccl/error.h"

namespace mccl::mpi {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Environment = std::map<std::string, std::string>;

const Environment kOpenMpi = {{"OMPI_COMM_WORLD_SIZE", "4"}};
const Environment kHydra = {{"MPI_LOCALNRANKS", "2"}, {"PMI_SIZE", "4"}, {"PMI_RANK", "1"}};
const Environment kSrun = {
    {"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "1"}, {"SLURM_STEP_NUM_TASKS", "4"}};

const Identity kOfOpenMpi = {"Open MPI 4.1.4", "/lib/libmpi.so.40", "Open MPI's ABI"};
const Identity kOfMpich = {"MPICH 4.0.2", "/lib/libmpich.so.12", "MPICH's ABI"};

std::string refusal(const Identity& identity, const Environment& environment,
                    std::string_view named_by = {}) {
  try {
    check_launcher(identity, launcher_of(environment), named_by);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return {};
}

TEST(MpiLauncher, IsFoundByItsVariables) {
  EXPECT_EQ(launcher_of({}).kind, Launcher::Kind::none);
  EXPECT_EQ(launcher_of(kOpenMpi).kind, Launcher::Kind::open_mpi);
  EXPECT_EQ(launcher_of(kHydra).kind, Launcher::Kind::hydra);
  EXPECT_EQ(launcher_of(kSrun).kind, Launcher::Kind::srun);
  for (const Environment& each : {kOpenMpi, kHydra, kSrun}) EXPECT_EQ(launcher_of(each).ranks, 4);
}

TEST(MpiLibrary, IsTakenFromAVariableThenThePathThenTheLauncher) {
  const auto names = [](Environment environment, const std::vector<std::string>& loaded) {
    return wanted_of(environment, launcher_of(environment), loaded).names;
  };
  EXPECT_THAT(names({{"MPI_LIBNAME", "a"}, {"MLX_MPI_LIBNAME", "b"}}, {"c"}), ElementsAre("a"));
  EXPECT_THAT(names({{"MLX_MPI_LIBNAME", "b"}}, {"c"}), ElementsAre("b"));
  EXPECT_THAT(names(kOpenMpi, {"c"}), ElementsAre("c"));
  EXPECT_THAT(names(kOpenMpi, {}).front(), HasSubstr("libmpi."));
  EXPECT_THAT(names(kHydra, {}).front(), HasSubstr("libmpich"));
}

TEST(MpiLibrary, OfAnotherLauncherIsRefusedByBothNames) {
  EXPECT_EQ(refusal(kOfOpenMpi, kOpenMpi), "");
  EXPECT_EQ(refusal(kOfMpich, kHydra), "");
  const std::string text = refusal(kOfMpich, kOpenMpi, "MPI_LIBNAME");
  EXPECT_THAT(text, HasSubstr("MPICH 4.0.2 (/lib/libmpich.so.12"));
  EXPECT_THAT(text, HasSubstr("Open MPI's mpirun"));
  EXPECT_THAT(text, HasSubstr("set by MPI_LIBNAME"));
  EXPECT_THAT(refusal(kOfOpenMpi, kHydra), HasSubstr("MPICH's mpirun"));
}

TEST(MpiLibrary, IsRefusedUnderSrunWithoutPmi) {
  EXPECT_THAT(refusal(kOfOpenMpi, kSrun), HasSubstr("--mpi=pmix"));
  EXPECT_THAT(refusal(kOfMpich, kSrun), HasSubstr("--mpi=pmi2"));
  Environment tells = kSrun;
  tells["PMIX_RANK"] = "0";
  EXPECT_EQ(refusal(kOfOpenMpi, tells), "");
}

TEST(MpiLibrary, SaysItsNameAndVersionInFewWords) {
  EXPECT_EQ(short_version("Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4"),
            "Open MPI 4.1.4");
  EXPECT_EQ(short_version("MPICH Version:\t4.0.2\nMPICH Release date:\tThu"), "MPICH 4.0.2");
  EXPECT_EQ(short_version("Intel(R) MPI Library 2021.13 for Linux* OS\n"),
            "Intel MPI 2021.13 for Linux* OS");
}

}  // namespace
}  // namespace mccl::mpi
