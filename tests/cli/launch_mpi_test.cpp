// Tests the command line of mpirun for `mccl launch --backend mpi`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "cli/kit/program.h"
#include "cli/launch/mpi.h"
#include "mccl/error.h"
#include "support/folder.h"

namespace mccl::cli::launch {
namespace {

using ::testing::ElementsAre;

Job job_on(const std::string& hosts) {
  JobRequest request;
  request.program = {"./program"};
  request.hosts = parse_hosts("--hosts", hosts);
  request.backend = Backend::mpi;
  return plan_job(request, "the key");
}

void touch(const std::filesystem::path& path) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path).put('\n');
}

Variables variables_of(const std::string& hosts, const MpiOptions& options = {},
                       const Mpirun& mpirun = {}) {
  return mpi_variables(job_on(hosts), options, mpirun);
}

/// Returns the words without the shell wrapper that sets torch's variables.
std::vector<std::string> words_of(const Job& job, const MpiOptions& options, MpirunKind kind,
                                  const Variables& variables = {}) {
  std::vector<std::string> words = mpirun_words(job, options, kind, variables);
  const auto shell = std::ranges::find(words, "sh");
  EXPECT_THAT(std::vector(shell, words.end() - 1), ElementsAre("sh", "-c", ::testing::_, "mccl"));
  words.erase(shell, words.end() - 1);
  return words;
}

TEST(LaunchMpi, RanksOnSeveralHostsGetSettingsAndTheMeetingAddress) {
  const MpiOptions options{
      {},
      {{"MCCL_LOG_LEVEL", "INFO"}, {"MLX_RANK", "3"}, {"MCCL_RANK", "3"}, {"HOME", "/root"}},
      5000,
      4999};
  const Variables variables = variables_of("a,b", options);
  EXPECT_EQ(variables, (Variables{{"MASTER_ADDR", "a"},
                                  {"MASTER_PORT", "4999"},
                                  {"MCCL_BACKEND", "mpi"},
                                  {"MCCL_JOB_KEY", "the key"},
                                  {"MCCL_LOG_LEVEL", "INFO"},
                                  {"MCCL_ROOT", "a:4998"}}));
  EXPECT_THAT(
      words_of(job_on("a,b"), options, MpirunKind::open_mpi, {{"A", "x"}, {"B", "y"}}),
      ElementsAre("mpirun", "-n", "2", "--host", "a:1,b:1", "-x", "A", "-x", "B", "./program"));
  EXPECT_THAT(words_of(job_on("a,b"), options, MpirunKind::hydra, {{"A", "x"}}),
              ElementsAre("mpirun", "-n", "2", "-hosts", "a:1,b:1", "./program"));
  EXPECT_FALSE(variables_of("localhost").contains("MCCL_ROOT"));
  EXPECT_EQ(variables_of("localhost").at("MASTER_ADDR"), "127.0.0.1");
}

TEST(LaunchMpi, PassesTheFolderInTheFormOfEachMpirun) {
  Job job = job_on("a");
  job.request.directory = "/work";
  EXPECT_THAT(words_of(job, {}, MpirunKind::open_mpi),
              ElementsAre("mpirun", "-n", "1", "--host", "a:1", "--wdir", "/work", "./program"));
  EXPECT_THAT(words_of(job, {}, MpirunKind::hydra),
              ElementsAre("mpirun", "-n", "1", "-hosts", "a:1", "-wdir", "/work", "./program"));
}

TEST(LaunchMpi, UserSettingsTakePrecedence) {
  const MpiOptions options{{}, {{"MCCL_ROOT", "c:1"}, {"MCCL_BACKEND", "native"}}, {}, 0};
  EXPECT_EQ(variables_of("a,b", options).at("MCCL_ROOT"), "c:1");
  EXPECT_EQ(variables_of("a,b", options).at("MCCL_BACKEND"), "native");
}

TEST(LaunchMpi, AcceptsBothNamesOfTheOpenMpiLibrary) {
  const mccl::testing::Folder made;
  const std::filesystem::path folder = made.path();
  const Mpirun mpirun{folder / "bin/mpirun", MpirunKind::open_mpi};
  touch(mpirun.program);
  EXPECT_FALSE(variables_of("a", {}, mpirun).contains("MPI_LIBNAME"));
  touch(folder / "lib/x86_64-linux-gnu/libmpi.so.40");
  touch(folder / "lib/libmpi.so");
  const Variables found = variables_of("a", {}, mpirun);
  EXPECT_EQ(found.at("MPI_LIBNAME"), "libmpi.so.40");
  EXPECT_EQ(found.at("MLX_MPI_LIBNAME"), "libmpi.so.40");
  const MpiOptions own{{}, {{"MPI_LIBNAME", "libmine.so"}}, {}, 0};
  EXPECT_EQ(variables_of("a", own, mpirun).at("MLX_MPI_LIBNAME"), "libmine.so");
  EXPECT_FALSE(variables_of("a", {}, {mpirun.program, MpirunKind::hydra}).contains("MPI_LIBNAME"));
}

TEST(LaunchMpi, AnArgumentMayBeSeveralWords) {
  const MpiOptions options{{"--mca btl_tcp_if_include lo", "-x 'A=b c'"}, {}, {}, 0};
  EXPECT_THAT(words_of(job_on("localhost"), options, MpirunKind::open_mpi),
              ElementsAre("mpirun", "-n", "1", "--host", "localhost:1", "--mca",
                          "btl_tcp_if_include", "lo", "-x", "A=b c", "./program"));
  EXPECT_THROW(mpirun_words(job_on("a"), {{"it's"}, {}, {}, 0}, MpirunKind::open_mpi, {}),
               InvalidArgument);
}

TEST(LaunchMpi, RecognisesMpirunByItsVersion) {
  EXPECT_EQ(kind_of_mpirun("m", "mpirun (Open MPI) 4.1.4\n"), MpirunKind::open_mpi);
  EXPECT_EQ(kind_of_mpirun("m", "HYDRA build details:\n"), MpirunKind::hydra);
  EXPECT_EQ(kind_of_mpirun("m", "Intel(R) MPI Library for Linux* OS, Version 2021.13"),
            MpirunKind::hydra);
  EXPECT_THROW(kind_of_mpirun("m", "something else"), Error);
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
