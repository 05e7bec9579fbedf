#include "cli/launch/mpi.h"

#include <fmt/format.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/value_text.h"
#include "cli/launch/process.h"
#include "cli/launch/words.h"
#include "mccl/error.h"

namespace mccl::cli::launch {
namespace {

/// What is set for these on this machine is for all ranks, on whatever host.
constexpr std::string_view kForwarded[] = {"MCCL_", "MLX_", "NCCL_", "MPI_LIBNAME"};
constexpr const char* kNames[] = {"mpirun", "mpiexec", "mpirun.openmpi", "mpirun.mpich"};

/// mpirun tells its ranks their places by names of its own; torch looks for others.
constexpr const char* kAsTorchrun =
    "export RANK=${OMPI_COMM_WORLD_RANK:-$PMI_RANK} WORLD_SIZE=${OMPI_COMM_WORLD_SIZE:-$PMI_SIZE} "
    "LOCAL_RANK=${OMPI_COMM_WORLD_LOCAL_RANK:-$MPI_LOCALRANKID} "
    "LOCAL_WORLD_SIZE=${OMPI_COMM_WORLD_LOCAL_SIZE:-$MPI_LOCALNRANKS}; exec \"$@\"";

std::string hosts_of(const Job& job) {
  if (job.all_here()) return fmt::format("localhost:{}", job.size());
  std::vector<std::string> hosts;
  for (std::size_t host = 0; host < job.hosts.size(); ++host)
    hosts.push_back(fmt::format("{}:{}", job.hosts[host].name, job.ranks_on(host)));
  return fmt::format("{}", fmt::join(hosts, ","));
}

std::string path_of(const Variables& inherited) {
  const auto path = inherited.find("PATH");
  return path == inherited.end() ? "" : path->second;
}

std::string find_mpirun(const Variables& inherited) {
  for (const char* name : kNames) {
    std::string program = find_program(name, path_of(inherited), "");
    if (!program.empty()) return program;
  }
  throw Error(
      "--backend mpi: there is no mpirun in PATH; install Open MPI (Debian: openmpi-bin) or MPICH "
      "(mpich)");
}

/// What the program prints to standard output when asked for its version.
std::string version_of(const std::string& program) {
  std::string text;
  FILE* output = ::popen(
      (command_line(std::vector<std::string>{program, "--version"}) + " 2>&1").c_str(), "r");
  if (!output) return text;
  std::array<char, 512> piece = {};
  while (std::fgets(piece.data(), piece.size(), output)) text += piece.data();
  ::pclose(output);
  return text;
}

}  // namespace

MpirunKind kind_of_mpirun(const std::string& program, std::string_view version) {
  const auto says = [version](std::string_view word) { return version.find(word) != version.npos; };
  if (says("Open MPI") || says("OpenRTE") || says("PRRTE") || says("prterun"))
    return MpirunKind::open_mpi;
  if (says("HYDRA") || says("Intel(R) MPI") || says("MPICH")) return MpirunKind::hydra;
  throw Error(
      fmt::format("--backend mpi: {} says that it is {}; expected that of Open MPI or MPICH",
                  program, in_quotes(version.substr(0, version.find('\n')))));
}

Variables variables_of_mpi(const Job& job, std::uint16_t port, const Variables& inherited) {
  Variables variables = job.request.environment;
  variables.emplace("MCCL_JOB_KEY", job.key);
  if (!inherited.contains("MCCL_BACKEND")) variables.emplace("MCCL_BACKEND", "mpi");
  variables.emplace("MASTER_ADDR", job.all_here() ? "127.0.0.1" : job.hosts.front().name);
  variables.emplace("MASTER_PORT", std::to_string(port));
  if (job.all_here()) return variables;
  for (const auto& [name, value] : inherited) {
    const auto is_prefix = [&name](std::string_view prefix) { return name.starts_with(prefix); };
    if (std::ranges::any_of(kForwarded, is_prefix)) variables.emplace(name, value);
  }
  return variables;
}

std::vector<std::string> mpirun_words(const Job& job, MpirunKind kind, const Variables& variables,
                                      const std::vector<std::string>& arguments) {
  const bool hydra = kind == MpirunKind::hydra;
  std::vector<std::string> words = {"mpirun", "-n", std::to_string(job.size()),
                                    hydra ? "-hosts" : "--host", hosts_of(job)};
  if (!job.request.directory.empty())
    words.insert(words.end(), {hydra ? "-wdir" : "--wdir", job.request.directory});
  // By name only: their values stay off the command line. Hydra passes on all that there are.
  for (const auto& [name, value] : variables)
    if (!hydra) words.insert(words.end(), {"-x", name});
  words.insert(words.end(), arguments.begin(), arguments.end());
  words.insert(words.end(), {"sh", "-c", kAsTorchrun, "mccl"});
  const std::vector<std::string>& program = job.ranks.front().argv;
  words.insert(words.end(), program.begin(), program.end());
  return words;
}

void become_mpirun(const Job& job, const std::vector<std::string>& arguments, std::uint16_t port,
                   const Variables& inherited, bool dry_run) {
  const std::string program = find_mpirun(inherited);
  const MpirunKind kind = kind_of_mpirun(program, version_of(program));
  const Variables variables = variables_of_mpi(job, port, inherited);
  const std::vector<std::string> words = mpirun_words(job, kind, variables, arguments);
  if (dry_run) {
    fmt::print("{}\n", command_line(words));
    return;
  }
  Variables environment = inherited;
  for (const auto& [name, value] : variables) environment[name] = value;
  execute(program, words, environment);
  throw Error(fmt::format("cannot run {}: {}", program, std::strerror(errno)));
}

}  // namespace mccl::cli::launch
