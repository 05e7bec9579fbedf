#include "cli/launch/running_host.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>
#include <thread>

#include "base/clock.h"
#include "base/first_line.h"
#include "base/value_text.h"
#include "cli/kit/file.h"
#include "cli/kit/program.h"
#include "mccl/error.h"

namespace mccl::cli::launch {
namespace {

using namespace std::chrono_literals;

constexpr auto kBetweenLooks = 10ms;
/// Processes left behind by ranks that have ended get less time; reap() has sent them SIGTERM.
constexpr std::chrono::milliseconds kShortGrace = 1s;
constexpr pid_t kFinish = 0;

/// If the guardian kept another pipe's write end open, its reader would see no end of file.
void close_all_but(int kept) {
  std::vector<int> open;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/fd", ignored))
    open.push_back(std::atoi(entry.path().filename().c_str()));
  for (const int descriptor : open)
    if (descriptor != kept) ::close(descriptor);
  const int nowhere = ::open("/dev/null", O_RDWR);
  for (int stream = 0; stream <= STDERR_FILENO; ++stream)
    if (stream != nowhere && stream != kept) ::dup2(nowhere, stream);
}

/// Processes that have left their rank's process group. None on systems without /proc.
std::vector<pid_t> marked_processes(const std::string& folder) {
  std::vector<pid_t> found;
  const std::string mark = fmt::format("{}={}/", kMark, folder);
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const pid_t process = std::atoi(entry.path().filename().c_str());
    if (process <= 0 || process == ::getpid()) continue;
    const std::string environment = contents_of(fmt::format("/proc/{}/environ", process));
    if (environment.starts_with(mark) || environment.find('\0' + mark) != std::string::npos)
      found.push_back(process);
  }
  return found;
}

void end_leftovers(const std::string& folder, std::set<pid_t> groups,
                   std::chrono::milliseconds grace) {
  // Sends the signal, and returns true if any of these groups and processes still exists.
  const auto signal = [&](int number) {
    std::erase_if(groups, [&](pid_t group) { return ::kill(-group, number) != 0; });
    const std::vector<pid_t> strays = marked_processes(folder);
    for (const pid_t process : strays) ::kill(process, number);
    return !groups.empty() || !strays.empty();
  };
  if (!signal(SIGTERM)) return;
  const Clock::time_point limit = Clock::now() + grace;
  while (signal(0) && Clock::now() < limit) std::this_thread::sleep_for(kBetweenLooks);
  while (signal(SIGKILL) && Clock::now() < limit + grace)
    std::this_thread::sleep_for(kBetweenLooks);
}

[[noreturn]] void guard(const std::string& folder, int pipe, std::chrono::milliseconds grace) {
  ::setsid();
  for (const int number : {SIGCHLD, SIGWINCH}) std::signal(number, SIG_DFL);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGQUIT, SIGUSR1, SIGUSR2})
    std::signal(number, SIG_IGN);
  close_all_but(pipe);
  std::set<pid_t> groups;
  pid_t word = 0;
  bool finished = false;
  while (!finished && read_some(pipe, &word, sizeof word) == sizeof word) {
    finished = word == kFinish;
    if (word > 0) groups.insert(word);
    if (word < 0) groups.erase(-word);
  }
  end_leftovers(folder, std::move(groups), finished ? kShortGrace : grace);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  ::_exit(0);
}

constexpr const char* kUsualPath = "/usr/local/bin:/usr/bin:/bin";

std::string fault_of(const RankPlan& rank, const std::string& path) {
  std::error_code unknown;
  if (!rank.directory.empty() && !std::filesystem::is_directory(rank.directory, unknown)) {
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
  return fmt::format("there is no script {} on this machine; check its path (ranks run in {})",
                     in_quotes(*script),
                     rank.directory.empty() ? "this directory" : in_quotes(rank.directory));
}

void write_secret(const std::string& path, const std::string& text) {
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  // A nearly full disk causes a short write, which does not set errno, so errno is set here.
  errno = ENOSPC;
  if (file.get() < 0 ||
      ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    throw Error(fmt::format("cannot write {}: {}; free some space, or set TMPDIR to another folder",
                            path, std::strerror(errno)));
}

/// This machine. Its ranks are child processes without a shell. They inherit the launcher's
/// environment, except variables that would make them ranks of an outer MLX job.
class LocalHost final : public RunningHost {
 public:
  LocalHost(const Job& job, std::size_t host, const RunOptions& options, Guardian& guardian)
      : RunningHost(job, host, options, guardian), inherited_(options.inherited) {
    std::erase_if(inherited_, [](const auto& variable) { return sets_mlx_rank(variable.first); });
    const std::string path = path_of(inherited_, kUsualPath);
    for (const RankPlan* rank : ranks_)
      if (fault_.empty()) fault_ = fault_of(*rank, path);
  }

  std::string fault() const override { return fault_; }
  ReachedHost reached() const override { return {"127.0.0.1", guardian_.folder()}; }
  ChildProcess start_mccl(const std::vector<std::string>& words) override {
    ProcessPlan plan{.argv = {this_program().string()}, .environment = inherited_};
    plan.argv.insert(plan.argv.end(), words.begin(), words.end());
    plan.environment[kMark] = guardian_.folder() + "/";
    ChildProcess process = start_process(plan);
    guardian_.watch(process.id);
    return process;
  }

  void prepare(const std::vector<NamedText>& files,
               const std::vector<Variables>& variables) override {
    for (const auto& [name, text] : files) write_secret(guardian_.folder() + "/" + name, text);
    std::vector<Variables> environments = variables;
    for (Variables& environment : environments)
      environment.insert(inherited_.begin(), inherited_.end());
    const std::vector<Binding> bindings =
        bindings_of(options_.bind_to, processors_here(), environments);
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      variables_[ranks_[i]->rank] = std::move(environments[i]);
      bindings_[ranks_[i]->rank] = bindings[i];
    }
  }

  ChildProcess start(const RankPlan& rank, int restarts,
                     const std::optional<TerminalPlan>& terminal) override {
    ProcessPlan plan{.argv = rank.argv,
                     .directory = rank.directory,
                     .environment = variables_[rank.rank],
                     .terminal = terminal,
                     .processors = binding_of(rank).processors,
                     .inherits_streams = options_.inherits_streams};
    if (restarts > 0) plan.environment[kRestartCount] = std::to_string(restarts);
    plan.argv[0] =
        find_program(rank.argv[0], path_of(plan.environment, kUsualPath), rank.directory);
    if (plan.argv[0].empty()) plan.argv[0] = rank.argv[0];
    ChildProcess process = start_process(plan);
    guardian_.watch(process.id);
    running_.insert(process.id);
    return process;
  }

  Exit ended(const ChildProcess& process, Exit exit, bool) override {
    // Processes that the rank left behind could hold ports and devices that its successor needs.
    if (options_.restarts_failed_only && !exit.good()) ::kill(-process.id, SIGKILL);
    guardian_.forget(process.id);
    running_.erase(process.id);
    return exit;
  }

  void signal(int number) override {
    const bool with_children = number == SIGTERM || number == SIGKILL;
    for (const pid_t leader : running_) ::kill(with_children ? -leader : leader, number);
  }

  void finish() override {
    had_mlx_on_mccl_ = ::access((guardian_.folder() + "/" + kOnMccl).c_str(), F_OK) == 0;
  }

 private:
  Variables inherited_;
  std::string fault_;
  std::map<int, Variables> variables_;  ///< Complete environments, keyed by rank.
  std::set<pid_t> running_;
};

}  // namespace

Guardian::Guardian(std::chrono::milliseconds grace)
    : folder_(make_temporary_folder("mccl-launch")) {
  Pipe pipe = make_pipe();
  process_ = ::fork();
  if (process_ < 0) {
    const int cause = errno;
    std::filesystem::remove_all(folder_);
    throw Error(fmt::format("cannot create a process: {}", std::strerror(cause)));
  }
  if (process_ == 0) {
    pipe.writer.close();
    guard(folder_, pipe.reader.get(), grace);
  }
  pipe_ = std::move(pipe.writer);
}

Guardian::~Guardian() {
  send(kFinish);
  pipe_.close();
  while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Guardian::send(pid_t what) {
  while (::write(pipe_.get(), &what, sizeof what) < 0 && errno == EINTR) {
  }
}

std::vector<std::string> texts_of_unbound(const RunningHosts& hosts) {
  std::vector<std::string> texts;
  for (const auto& host : hosts) {
    const Binding& first = host->binding_of(*host->ranks().front());
    if (first.processors.empty())
      texts.push_back(fmt::format("the ranks on {} are not bound to cores: {}",
                                  text_of(host->host()), first.why_not));
  }
  return texts;
}

std::vector<std::string> texts_of_unused_mccl(const RunningHosts& hosts, bool failed) {
  std::vector<std::string> without;
  for (const auto& host : hosts)
    if (!host->had_mlx_on_mccl()) without.push_back(text_of(host->host()));
  if (without.empty() || (failed && without.size() == hosts.size())) return {};
  return {fmt::format(
      "WARN: {} no program on {}: none imported MLX under a Python that has MCCL installed. "
      "Install mccl-engine on those hosts for the program's Python, or name another Python with "
      "--python",
      failed ? "when the job failed, --mlx had taken effect in" : "--mlx took effect in",
      fmt::join(without, ", "))};
}

std::vector<std::string> add_lost_hosts(const RunningHosts& hosts, const Job& job,
                                        std::vector<RankFailure>& failures) {
  std::vector<std::string> texts;
  for (std::size_t host = 0; host < hosts.size(); ++host) {
    const std::optional<Trouble> trouble = hosts[host]->trouble();
    if (!trouble) continue;
    texts.push_back(trouble->text);
    if (!trouble->ranks_lost) continue;
    int rank = hosts[host]->ranks().front()->rank;
    for (const RankFailure& failure : failures)
      if (job.ranks[static_cast<std::size_t>(failure.rank)].host == host) rank = failure.rank;
    failures.push_back(
        {rank, text_of(job.hosts[host]), {.status = kConnectionLost, .connection_lost = true}});
  }
  return texts;
}

std::unique_ptr<RunningHost> make_local_host(const Job& job, std::size_t host,
                                             const RunOptions& options, Guardian& guardian) {
  return std::make_unique<LocalHost>(job, host, options, guardian);
}

}  // namespace mccl::cli::launch
