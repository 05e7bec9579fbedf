#include "cli/launch/mpi.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "base/value_text.h"
#include "cli/kit/dialogue.h"
#include "cli/kit/process.h"
#include "cli/kit/program.h"
#include "cli/launch/resources.h"
#include "mccl/error.h"

namespace mccl::cli::launch {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kForVersion{30};

constexpr const char* kMpiruns[] = {"mpirun", "mpiexec", "mpirun.openmpi", "mpirun.mpich"};
/// File names of Open MPI's library, the most specific first. MLX supports no other MPI.
constexpr std::array kLibraries = {"libmpi.so.40", "libmpi.40.dylib", "libmpi.so", "libmpi.dylib"};

/// Shell code that copies each rank's number and the number of ranks from mpirun's variables to the
/// variables that torch reads, and then runs the program.
constexpr const char* kAsTorchrun =
    "export RANK=${OMPI_COMM_WORLD_RANK:-$PMI_RANK} WORLD_SIZE=${OMPI_COMM_WORLD_SIZE:-$PMI_SIZE} "
    "LOCAL_RANK=${OMPI_COMM_WORLD_LOCAL_RANK:-$MPI_LOCALRANKID} "
    "LOCAL_WORLD_SIZE=${OMPI_COMM_WORLD_LOCAL_SIZE:-$MPI_LOCALNRANKS}; exec \"$@\"";

/// mpirun numbers the ranks, so the launcher's own rank in an outer job is not passed on.
bool sets_own_rank(const Variables::value_type& variable) {
  const std::string& name = variable.first;
  return sets_mlx_rank(name) || name == "MCCL_RANK" || name == "MCCL_WORLD_SIZE";
}

/// Empty if the usual folders do not contain it, or if mpirun is not Open MPI's.
std::string library_of(const Mpirun& mpirun) {
  std::error_code none;
  const fs::path real = fs::canonical(mpirun.program, none);
  if (none || mpirun.kind != MpirunKind::open_mpi) return {};
  const fs::path prefix = real.parent_path().parent_path();
  for (const char* name : kLibraries) {
    for (const char* folder : {"lib", "lib64"}) {
      if (fs::exists(prefix / folder / name, none)) return name;
      // Debian keeps libraries in a subfolder for each architecture.
      for (const auto& inner : fs::directory_iterator(prefix / folder, none))
        if (fs::exists(inner.path() / name, none)) return name;
    }
  }
  return {};
}

/// Sets both variables that name the MPI library: MLX's code reads one of them, but MLX's
/// documentation gives the other.
void add_library(Variables& variables, const Mpirun& mpirun) {
  const std::array names = {"MLX_MPI_LIBNAME", "MPI_LIBNAME"};
  std::string library;
  for (const char* name : names)
    if (library.empty() && variables.contains(name)) library = variables[name];
  if (library.empty()) library = library_of(mpirun);
  for (const char* name : names)
    if (!library.empty()) variables.emplace(name, library);
}

/// The address at which other hosts reach rank 0.
std::string meeting_of(const Job& job) {
  if (job.all_here()) return "127.0.0.1";
  const Host& first = job.entry_of(job.ranks.front());
  if (!first.addresses.empty()) return first.addresses.front();
  return is_here(first) ? name_of_this_machine() : first.name;
}

std::string hosts_of(const Job& job) {
  if (job.all_here()) return fmt::format("localhost:{}", job.size());
  std::vector<std::string> hosts;
  for (std::size_t host = 0; host < job.hosts.size(); ++host)
    hosts.push_back(fmt::format("{}:{}", job.hosts[host].name, job.ranks_on(host).size()));
  return fmt::format("{}", fmt::join(hosts, ","));
}

}  // namespace

MpirunKind kind_of_mpirun(const std::string& program, std::string_view version) {
  const auto says = [version](std::string_view word) { return version.find(word) != version.npos; };
  if (says("Open MPI") || says("OpenRTE") || says("PRRTE") || says("prterun"))
    return MpirunKind::open_mpi;
  if (says("HYDRA") || says("Intel(R) MPI") || says("MPICH")) return MpirunKind::hydra;
  throw Error(fmt::format(
      "--backend mpi: {} identifies itself as {}; expected the mpirun of Open MPI or MPICH",
      program, in_quotes(version.substr(0, version.find('\n')))));
}

Mpirun find_mpirun(const Variables& inherited) {
  for (const char* name : kMpiruns) {
    const std::string program = find_program(name, path_of(inherited));
    if (program.empty()) continue;
    const ProcessPlan plan{.argv = {program, "--version"}, .environment = inherited};
    const Captured version = capture(plan, {.time = Clock::now() + kForVersion}, true);
    return {program, kind_of_mpirun(program, version.output)};
  }
  throw Error(
      "--backend mpi: there is no mpirun in PATH; install Open MPI (Debian: openmpi-bin) or MPICH "
      "(mpich)");
}

Variables mpi_variables(const Job& job, const MpiOptions& options, const Mpirun& mpirun) {
  Variables variables = forwarded(options.inherited);
  std::erase_if(variables, sets_own_rank);
  for (const char* name : {"MPI_LIBNAME", "DYLD_LIBRARY_PATH"})
    if (const auto own = options.inherited.find(name); own != options.inherited.end())
      variables.insert(*own);
  for (const auto& [name, value] : job.request.environment) variables[name] = value;
  variables["MCCL_JOB_KEY"] = job.key;
  variables.emplace("MCCL_BACKEND", "mpi");
  // MCCL's own engine, if the user chose it, needs the address of rank 0, which Open MPI does not
  // provide.
  if (!job.all_here()) {
    const Ports ports = ports_from(job, options.starting_port.value_or(kUsualPort));
    variables.emplace("MCCL_ROOT", at_port(meeting_of(job), ports.root));
  }
  variables.emplace("MASTER_ADDR", meeting_of(job));
  variables.emplace("MASTER_PORT", std::to_string(options.master_port));
  add_library(variables, mpirun);
  return variables;
}

std::vector<std::string> mpirun_words(const Job& job, const MpiOptions& options, MpirunKind kind,
                                      const Variables& variables) {
  const bool hydra = kind == MpirunKind::hydra;
  std::vector<std::string> words = {"mpirun", "-n", std::to_string(job.size()),
                                    hydra ? "-hosts" : "--host", hosts_of(job)};
  if (!job.request.directory.empty())
    words.insert(words.end(), {hydra ? "-wdir" : "--wdir", job.request.directory});
  // Variables are passed by name, so that their values stay off the command line. Hydra passes on
  // all variables by itself.
  for (const auto& [name, value] : variables)
    if (!hydra) words.insert(words.end(), {"-x", name});
  for (const std::string& argument : options.arguments) {
    const std::vector<std::string> own = split_words("--mpi-arg", argument);
    words.insert(words.end(), own.begin(), own.end());
  }
  words.insert(words.end(), {"sh", "-c", kAsTorchrun, "mccl"});
  const std::vector<std::string>& program = job.ranks.front().argv;
  words.insert(words.end(), program.begin(), program.end());
  return words;
}

void become_mpirun(const Job& job, const MpiOptions& options, const Mpirun& mpirun) {
  const Variables variables = mpi_variables(job, options, mpirun);
  Variables environment = options.inherited;
  std::erase_if(environment, sets_own_rank);
  for (const auto& [name, value] : variables) environment[name] = value;
  execute(mpirun.program, mpirun_words(job, options, mpirun.kind, variables), environment);
  throw Error(fmt::format("cannot run {}: {}", mpirun.program, std::strerror(errno)));
}

}  // namespace mccl::cli::launch
