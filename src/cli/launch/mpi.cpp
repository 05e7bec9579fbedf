#include "cli/launch/mpi.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "cli/launch/process.h"
#include "mccl/error.h"

namespace mccl::cli::launch {
namespace {

/// What the ranks get beyond what mpirun tells them.
Variables variables_of(const Job& job) {
  Variables variables = job.request.environment;
  variables["MCCL_JOB_KEY"] = job.key;
  return variables;
}

}  // namespace

std::vector<std::string> mpirun_words(const Job& job, const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {"mpirun", "-n", std::to_string(job.size())};
  if (!job.all_here()) {
    std::vector<std::string> hosts;
    for (std::size_t host = 0; host < job.hosts.size(); ++host)
      hosts.push_back(fmt::format("{}:{}", job.hosts[host].name, job.ranks_on(host)));
    words.insert(words.end(), {"--host", fmt::format("{}", fmt::join(hosts, ","))});
  }
  if (!job.request.directory.empty()) words.insert(words.end(), {"--wdir", job.request.directory});
  // By name only: their values stay off the command line.
  for (const auto& [name, value] : variables_of(job)) words.insert(words.end(), {"-x", name});
  words.insert(words.end(), arguments.begin(), arguments.end());
  const std::vector<std::string>& program = job.ranks.front().argv;
  words.insert(words.end(), program.begin(), program.end());
  return words;
}

void become_mpirun(const Job& job, const std::vector<std::string>& arguments,
                   const Variables& inherited) {
  std::vector<std::string> words = mpirun_words(job, arguments);
  Variables environment = inherited;
  for (const auto& [name, value] : variables_of(job)) environment[name] = value;
  const auto path = inherited.find("PATH");
  const std::string program =
      find_program("mpirun", path == inherited.end() ? "" : path->second, "");
  if (program.empty())
    throw Error(
        "--backend mpi: there is no mpirun in PATH; install Open MPI (Debian: openmpi-bin)");
  execute(program, words, environment);
  throw Error(fmt::format("cannot run {}: {}", program, std::strerror(errno)));
}

}  // namespace mccl::cli::launch
