#include "cli/launch/mpi.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "cli/launch/process.h"
#include "cli/launch/run.h"
#include "cli/launch/words.h"
#include "mccl/error.h"

namespace mccl::cli::launch {
namespace {

namespace fs = std::filesystem;

/// What Open MPI's library is called, the name that says whose it is first.
constexpr std::array kLibraries = {"libmpi.so.40", "libmpi.40.dylib", "libmpi.so", "libmpi.dylib"};

/// Of a job that the launcher itself may be in; mpirun gives each rank its own.
bool tells_own_place(const Variables::value_type& variable) {
  const std::string& name = variable.first;
  return tells_mlx_a_place(name) || name == "MCCL_RANK" || name == "MCCL_WORLD_SIZE";
}

/// The name of the library that belongs to an mpirun; empty where it lies in no usual place.
std::string library_of(const std::string& mpirun) {
  std::error_code none;
  const fs::path real = fs::canonical(mpirun, none);
  if (none) return {};
  const fs::path prefix = real.parent_path().parent_path();
  for (const char* name : kLibraries) {
    for (const char* folder : {"lib", "lib64"}) {
      if (fs::exists(prefix / folder / name, none)) return name;
      // Debian has a folder for each kind of processor.
      for (const auto& inner : fs::directory_iterator(prefix / folder, none))
        if (fs::exists(inner.path() / name, none)) return name;
    }
  }
  return {};
}

/// MLX's code reads one name and its documentation says the other.
void add_library(Variables& variables, const std::string& mpirun) {
  const std::array names = {"MLX_MPI_LIBNAME", "MPI_LIBNAME"};
  std::string library;
  for (const char* name : names)
    if (library.empty() && variables.contains(name)) library = variables[name];
  if (library.empty()) library = library_of(mpirun);
  for (const char* name : names)
    if (!library.empty()) variables.emplace(name, library);
}

/// The address of rank 0 by which other hosts reach it.
std::string meeting_of(const Job& job) {
  const Host& first = job.entry_of(job.ranks.front());
  if (!first.addresses.empty()) return first.addresses.front();
  if (!is_here(first)) return first.name;
  std::array<char, 256> name = {};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace

Variables mpi_variables(const Job& job, const MpiOptions& options, const std::string& mpirun) {
  Variables variables = forwarded(options.inherited);
  std::erase_if(variables, tells_own_place);
  for (const char* name : {"MPI_LIBNAME", "DYLD_LIBRARY_PATH"})
    if (const auto own = options.inherited.find(name); own != options.inherited.end())
      variables.insert(*own);
  for (const auto& [name, value] : job.request.environment) variables[name] = value;
  variables["MCCL_JOB_KEY"] = job.key;
  // Open MPI does not tell its ranks where rank 0 is.
  if (!job.all_here()) {
    const Ports ports = ports_from(job, options.starting_port.value_or(kUsualPort));
    variables.emplace("MCCL_ROOT", with_port(meeting_of(job), ports.root));
  }
  if (!mpirun.empty()) add_library(variables, mpirun);
  return variables;
}

std::vector<std::string> mpirun_words(const Job& job, const MpiOptions& options,
                                      const Variables& variables) {
  std::vector<std::string> words = {"mpirun", "-n", std::to_string(job.size())};
  if (!job.all_here()) {
    std::vector<std::string> hosts;
    for (std::size_t host = 0; host < job.hosts.size(); ++host)
      hosts.push_back(fmt::format("{}:{}", job.hosts[host].name, job.ranks_on(host)));
    words.insert(words.end(), {"--host", fmt::format("{}", fmt::join(hosts, ","))});
  }
  if (!job.request.directory.empty()) words.insert(words.end(), {"--wdir", job.request.directory});
  // By name only: their values stay off the command line.
  for (const auto& [name, value] : variables) words.insert(words.end(), {"-x", name});
  for (const std::string& argument : options.arguments) {
    const std::vector<std::string> own = split_words("--mpi-arg", argument);
    words.insert(words.end(), own.begin(), own.end());
  }
  const std::vector<std::string>& program = job.ranks.front().argv;
  words.insert(words.end(), program.begin(), program.end());
  return words;
}

std::string find_mpirun(const Variables& inherited) {
  const auto path = inherited.find("PATH");
  return find_program("mpirun", path == inherited.end() ? "" : path->second, "");
}

void become_mpirun(const Job& job, const MpiOptions& options) {
  const std::string program = find_mpirun(options.inherited);
  if (program.empty())
    throw Error(
        "--backend mpi: there is no mpirun in PATH; install Open MPI (Debian: openmpi-bin)");
  const Variables variables = mpi_variables(job, options, program);
  Variables environment = options.inherited;
  std::erase_if(environment, tells_own_place);
  for (const auto& [name, value] : variables) environment[name] = value;
  execute(program, mpirun_words(job, options, variables), environment);
  throw Error(fmt::format("cannot run {}: {}", program, std::strerror(errno)));
}

}  // namespace mccl::cli::launch
