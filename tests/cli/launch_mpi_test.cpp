// Jobs of `mccl launch --backend mpi`: what mpirun is told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "cli/launch/mlx_build.h"
#include "cli/launch/mpi.h"
#include "mccl/error.h"
#include "support/folder.h"

namespace mccl::cli::launch {
namespace {

using ::testing::ElementsAre;

Job job_on(const std::string& hosts) {
  Request request;
  request.program = {"./program"};
  request.hosts = parse_hosts("--hosts", hosts);
  request.backend = Backend::mpi;
  return plan_job(request, "the key");
}

void touch(const std::filesystem::path& path) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path).put('\n');
}

TEST(LaunchMpi, RanksOnSeveralHostsGetSettingsAndWhereToMeet) {
  const MpiOptions options{
      {},
      {{"MCCL_LOG_LEVEL", "INFO"}, {"MLX_RANK", "3"}, {"MCCL_RANK", "3"}, {"HOME", "/root"}},
      5000};
  const Variables variables = mpi_variables(job_on("a,b"), options, "");
  EXPECT_EQ(variables,
            (Variables{
                {"MCCL_JOB_KEY", "the key"}, {"MCCL_LOG_LEVEL", "INFO"}, {"MCCL_ROOT", "a:4998"}}));
  const auto words = mpirun_words(job_on("a,b"), options, variables);
  EXPECT_THAT(words, ElementsAre("mpirun", "-n", "2", "--host", "a:1,b:1", "-x", "MCCL_JOB_KEY",
                                 "-x", "MCCL_LOG_LEVEL", "-x", "MCCL_ROOT", "./program"));
  EXPECT_FALSE(mpi_variables(job_on("localhost"), options, "").contains("MCCL_ROOT"));
}

TEST(LaunchMpi, WhereToMeetIsWhatThePersonSays) {
  const MpiOptions options{{}, {{"MCCL_ROOT", "c:1"}}, {}};
  EXPECT_EQ(mpi_variables(job_on("a,b"), options, "").at("MCCL_ROOT"), "c:1");
}

TEST(LaunchMpi, TheLibraryHasBothOfItsNames) {
  const mccl::testing::Folder made;
  const std::filesystem::path folder = made.path();
  const std::string mpirun = folder / "bin/mpirun";
  touch(mpirun);
  EXPECT_FALSE(mpi_variables(job_on("a"), {}, mpirun).contains("MPI_LIBNAME"));
  touch(folder / "lib/x86_64-linux-gnu/libmpi.so.40");
  touch(folder / "lib/libmpi.so");
  const Variables found = mpi_variables(job_on("a"), {}, mpirun);
  EXPECT_EQ(found.at("MPI_LIBNAME"), "libmpi.so.40");
  EXPECT_EQ(found.at("MLX_MPI_LIBNAME"), "libmpi.so.40");
  const MpiOptions own{{}, {{"MPI_LIBNAME", "libmine.so"}}, {}};
  EXPECT_EQ(mpi_variables(job_on("a"), own, mpirun).at("MLX_MPI_LIBNAME"), "libmine.so");
}

TEST(LaunchMpi, AnArgumentMayBeSeveralWords) {
  const MpiOptions options{{"--mca btl_tcp_if_include lo", "-x 'A=b c'"}, {}, {}};
  const auto words = mpirun_words(job_on("localhost"), options, {});
  EXPECT_THAT(words, ElementsAre("mpirun", "-n", "1", "--mca", "btl_tcp_if_include", "lo", "-x",
                                 "A=b c", "./program"));
  EXPECT_THROW(mpirun_words(job_on("a"), {{"it's"}, {}, {}}, {}), InvalidArgument);
}

TEST(LaunchMlxBuild, IsForCudaWhereItsPackageAndAGpuAre) {
  const mccl::testing::Folder made;
  const std::filesystem::path folder = made.path();
  const std::string python = folder / "bin/python";
  const std::string devices = folder / "dev";
  const auto package = folder / "lib/python3.11/site-packages/mlx_cuda_12-0.32.4.dist-info";
  EXPECT_FALSE(runs_mlx_on_cuda(python, devices));
  touch(package / "METADATA");
  EXPECT_FALSE(runs_mlx_on_cuda(python, devices));
  touch(folder / "dev/nvidiactl");
  EXPECT_TRUE(runs_mlx_on_cuda(python, devices));
  std::filesystem::remove_all(package);
  EXPECT_FALSE(runs_mlx_on_cuda(python, devices));
}

}  // namespace
}  // namespace mccl::cli::launch
