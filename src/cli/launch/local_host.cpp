#include "cli/launch/local_host.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/value_text.h"
#include "cli/launch/python.h"
#include "mccl/error.h"

namespace mccl::cli::launch {
namespace {

std::string path_of(const Variables& inherited) {
  const auto path = inherited.find("PATH");
  return path == inherited.end() ? "/usr/local/bin:/usr/bin:/bin" : path->second;
}

bool is_folder(const std::string& path) {
  struct stat about = {};
  return ::stat(path.c_str(), &about) == 0 && S_ISDIR(about.st_mode);
}

/// Returns the reason why the rank cannot be started. Empty if there is none.
std::string fault_of(const Rank& rank, const std::string& path) {
  if (!rank.directory.empty() && !is_folder(rank.directory)) {
    return fmt::format("there is no directory {} on this machine; give another with --cwd",
                       in_quotes(rank.directory));
  }
  const std::string& program = rank.argv.front();
  if (find_program(program, path, rank.directory).empty()) {
    return fmt::format("there is no program {} on this machine{}", in_quotes(program),
                       program.find('/') == program.npos
                           ? " in PATH; write ./ before the name of a file in this directory"
                           : "; is the path right, and the file executable (chmod +x)?");
  }
  const std::string* script = script_of(rank);
  if (script == nullptr) return {};
  const bool whole = script->starts_with('/') || rank.directory.empty();
  if (::access((whole ? *script : rank.directory + "/" + *script).c_str(), R_OK) == 0) return {};
  return fmt::format("there is no script {} on this machine; is the path right from {}?",
                     in_quotes(*script),
                     rank.directory.empty() ? "here" : in_quotes(rank.directory));
}

void write_secret(const std::string& path, const std::string& text) {
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  // A nearly full disk causes a short write, which does not set errno.
  errno = ENOSPC;
  if (file.get() < 0 ||
      ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    throw Error(fmt::format("cannot write {}: {}; free some space, or set TMPDIR to another folder",
                            path, std::strerror(errno)));
}

}  // namespace

LocalHost::LocalHost(const std::vector<const Rank*>& ranks, const Variables& inherited,
                     Guardian& guardian, BindTo bind_to)
    : inherited_(inherited), guardian_(guardian), bind_to_(bind_to) {
  std::erase_if(inherited_, [](const auto& variable) { return tells_mlx_a_place(variable.first); });
  const std::string path = path_of(inherited);
  for (const Rank* rank : ranks)
    if (fault_.empty()) fault_ = fault_of(*rank, path);
}

std::optional<Process> LocalHost::start_mccl(const std::vector<std::string>& words) {
  ProcessPlan plan;
  plan.argv = {this_program().string()};
  plan.argv.insert(plan.argv.end(), words.begin(), words.end());
  plan.environment = inherited_;
  plan.environment[kMark] = guardian_.folder() + "/";
  Process process = launch::start(plan);
  guardian_.watch(process.id);
  return process;
}

void LocalHost::prepare(const Files& files, const std::vector<const Rank*>& ranks,
                        const std::vector<Variables>& variables) {
  write_secret(guardian_.folder() + "/" + kRingFile, files.ring);
  if (!files.devices.empty()) write_secret(guardian_.folder() + "/" + kDevicesFile, files.devices);
  std::vector<Variables> environments;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    Variables& environment = environments.emplace_back(inherited_);
    for (const auto& [name, value] : variables[i]) environment[name] = value;
  }
  const std::vector<Binding> bindings = bindings_of(bind_to_, processors_here(), environments);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    variables_[ranks[i]->rank] = variables[i];
    bindings_[ranks[i]->rank] = bindings[i];
  }
}

Process LocalHost::start(const Rank& rank, const std::optional<TerminalPlan>& terminal) {
  ProcessPlan plan{.argv = rank.argv,
                   .directory = rank.directory,
                   .environment = inherited_,
                   .terminal = {},
                   .echo = terminal && terminal->echo,
                   .processors = binding_of(rank).processors};
  for (const auto& [name, value] : variables_[rank.rank]) plan.environment[name] = value;
  plan.argv[0] = find_program(rank.argv[0], path_of(plan.environment), rank.directory);
  if (plan.argv[0].empty()) plan.argv[0] = rank.argv[0];
  if (terminal) plan.terminal = terminal->size;
  Process process = launch::start(plan);
  guardian_.watch(process.id);
  running_.insert(process.id);
  return process;
}

Exit LocalHost::ended(const Process& process, Exit exit, bool) {
  guardian_.forget(process.id);
  running_.erase(process.id);
  return exit;
}

void LocalHost::finish() {
  had_mlx_on_mccl_ = ::access((guardian_.folder() + "/" + kOnMccl).c_str(), F_OK) == 0;
}

void LocalHost::signal(int number) {
  const bool with_children = number == SIGTERM || number == SIGKILL;
  for (const pid_t leader : running_) ::kill(with_children ? -leader : leader, number);
}

}  // namespace mccl::cli::launch
