#include "cli/kit/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <span>
#include <utility>

#include "base/open_files.h"
#include "mccl/error.h"

namespace mccl::cli {
namespace {

[[maybe_unused]] constexpr int kPipeBytes = 1 << 20;

struct Streams {
  Descriptor input;
  Descriptor output;
  Descriptor error;
};

/// Fewer reads are needed.
void enlarge([[maybe_unused]] const Descriptor& pipe) {
#ifdef F_SETPIPE_SZ
  ::fcntl(pipe.get(), F_SETPIPE_SZ, kPipeBytes);
#endif
}

[[noreturn]] void refuse(const char* what) {
  throw Error(fmt::format(
      "cannot create {}: {}; start fewer ranks on this machine, or raise its limits (ulimit)", what,
      std::strerror(errno)));
}

/// Line ends pass unchanged, because the user's own terminal converts them.
void furnish(int terminal, const TerminalPlan& plan) {
  termios modes = {};
  if (::tcgetattr(terminal, &modes) == 0) {
    modes.c_oflag &= ~static_cast<tcflag_t>(OPOST);
    if (!plan.echo)
      modes.c_lflag &= ~static_cast<tcflag_t>(ECHO | ECHOE | ECHOK | ECHONL | ECHOCTL);
    ::tcsetattr(terminal, TCSANOW, &modes);
  }
  ::ioctl(terminal, TIOCSWINSZ, &plan.size);
}

Descriptor copy_of(int descriptor) {
  const int copy = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) refuse("a file descriptor");
  return Descriptor(copy);
}

void open_terminal(const ProcessPlan& plan, ChildProcess& process, Streams& child) {
  Descriptor ours(::posix_openpt(O_RDWR | O_NOCTTY));
  if (ours.get() < 0 || ::grantpt(ours.get()) != 0 || ::unlockpt(ours.get()) != 0)
    refuse("a terminal");
  ::fcntl(ours.get(), F_SETFD, FD_CLOEXEC);
  child.input = Descriptor(::open(::ptsname(ours.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (child.input.get() < 0) refuse("a terminal");
  furnish(child.input.get(), *plan.terminal);
  child.output = copy_of(child.input.get());
  process.input = copy_of(ours.get());
  process.output = std::move(ours);
  process.has_terminal = true;
}

Streams open_streams(const ProcessPlan& plan, ChildProcess& process) {
  Streams child;
  if (plan.inherits_streams) {
    child.input = Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!child.input) refuse("a file descriptor");
    child.output = copy_of(STDOUT_FILENO);
    child.error = copy_of(STDERR_FILENO);
    return child;
  }
  if (plan.terminal) {
    open_terminal(plan, process, child);
  } else {
    Pipe input = make_pipe();
    Pipe output = make_pipe();
    enlarge(output.reader);
    child.input = std::move(input.reader);
    process.input = std::move(input.writer);
    child.output = std::move(output.writer);
    process.output = std::move(output.reader);
  }
  Pipe error = make_pipe();
  child.error = std::move(error.writer);
  process.error = std::move(error.reader);
  for (const Descriptor* end : {&process.input, &process.output, &process.error})
    do_not_block(*end);
  return child;
}

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> texts_of(const std::map<std::string, std::string>& environment) {
  std::vector<std::string> texts;
  texts.reserve(environment.size());
  for (const auto& [name, value] : environment) texts.push_back(fmt::format("{}={}", name, value));
  return texts;
}

/// The limit before make_room_for_files(). Children get it, because programs that use select(2)
/// rely on a low one.
const rlimit& files_limit_of_children() {
  static const rlimit first = [] {
    rlimit limit = {};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    return limit;
  }();
  return first;
}

/// A shell does the same for a program that it starts.
void reset_signals() {
  for (int number = 1; number < NSIG; ++number) std::signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

#ifdef __linux__
using ProcessorSet = std::vector<cpu_set_t>;

/// An empty set stands for all processors.
ProcessorSet set_of(const std::vector<int>& processors) {
  if (processors.empty()) return {};
  const auto most = static_cast<std::size_t>(std::ranges::max(processors));
  ProcessorSet set(most / CPU_SETSIZE + 1);
  for (cpu_set_t& part : set) CPU_ZERO(&part);
  for (const int processor : processors)
    CPU_SET_S(static_cast<std::size_t>(processor), set.size() * sizeof(cpu_set_t), set.data());
  return set;
}

/// Ignores errors: a rank that cannot be bound runs unbound.
void bind_to(const ProcessorSet& set) {
  if (!set.empty()) ::sched_setaffinity(0, set.size() * sizeof(cpu_set_t), set.data());
}
#else
struct ProcessorSet {};
ProcessorSet set_of(const std::vector<int>&) { return {}; }
void bind_to(const ProcessorSet&) {}
#endif

/// Called in the child after fork(), where other threads may have held locks, such as the
/// allocator's. So this function must not allocate memory.
[[noreturn]] void become(const char* directory, char** argv, char** environment,
                         const Streams& streams, bool terminal, const rlimit& files,
                         const ProcessorSet& processors) {
  ::setsid();
  bind_to(processors);
  ::setrlimit(RLIMIT_NOFILE, &files);
  reset_signals();
  ::dup2(streams.input.get(), STDIN_FILENO);
  ::dup2(streams.output.get(), STDOUT_FILENO);
  ::dup2(streams.error.get(), STDERR_FILENO);
  if (terminal) ::ioctl(STDIN_FILENO, TIOCSCTTY, 0);
  if (directory[0] == '\0' || ::chdir(directory) == 0) ::execve(argv[0], argv, environment);
  const int cause = errno;
  const char* why = std::strerror(cause);
  for (const char* text : {"mccl launch: cannot start ", static_cast<const char*>(argv[0]), " in ",
                           directory[0] == '\0' ? "." : directory, ": ", why, "\n"}) {
    if (::write(STDERR_FILENO, text, std::strlen(text)) < 0) break;
  }
  ::_exit(cause == ENOENT ? kNotFound : kCannotExecute);
}

constexpr std::array kGathered = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,
                                  SIGUSR1, SIGUSR2, SIGCHLD, SIGWINCH};
constexpr std::array kIgnored = {SIGPIPE, SIGTSTP, SIGTTIN, SIGTTOU};

/// Global, because the signal handler receives only the number of the signal.
Pipe gathered;
volatile std::sig_atomic_t gathered_writer = -1;

void gather(int number) {
  const int cause = errno;
  const auto byte = static_cast<char>(number);
  [[maybe_unused]] const ssize_t n = ::write(gathered_writer, &byte, 1);
  errno = cause;
}

}  // namespace

Pipe make_pipe() {
  std::array<int, 2> ends = {};
  if (::pipe(ends.data()) != 0)
    throw Error(fmt::format("cannot create a pipe: {}; start fewer ranks", std::strerror(errno)));
  for (const int end : ends) ::fcntl(end, F_SETFD, FD_CLOEXEC);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

void do_not_block(const Descriptor& descriptor) {
  ::fcntl(descriptor.get(), F_SETFL, ::fcntl(descriptor.get(), F_GETFL) | O_NONBLOCK);
}

ssize_t read_some(int descriptor, void* to, std::size_t limit) {
  for (;;) {
    const ssize_t n = ::read(descriptor, to, limit);
    if (n >= 0 || errno != EINTR) return n;
  }
}

void make_room_for_files(std::size_t files, std::string_view what, std::string_view fewer) {
  files_limit_of_children();
  raise_open_files_limit();
  const std::size_t needed = open_files() + files;
  const std::size_t limit = open_files_limit();
  if (needed <= limit) return;
  throw Error(fmt::format(
      "{} needs {} open files, but a process of this user may open {}; raise the limit (ulimit "
      "-Hn {}, as root, or a line in /etc/security/limits.conf), or {}",
      what, needed, limit, needed, fewer));
}

ChildProcess start_process(const ProcessPlan& plan) {
  const rlimit& files = files_limit_of_children();
  const ProcessorSet processors = set_of(plan.processors);
  ChildProcess process;
  const Streams child = open_streams(plan, process);
  std::vector<std::string> arguments = plan.argv;
  std::vector<std::string> variables = texts_of(plan.environment);
  const std::vector<char*> argv = pointers_to(arguments);
  const std::vector<char*> environment = pointers_to(variables);
  process.id = ::fork();
  if (process.id < 0) refuse("a process");
  if (process.id == 0) {
    become(plan.directory.c_str(), const_cast<char**>(argv.data()),
           const_cast<char**>(environment.data()), child, plan.terminal.has_value(), files,
           processors);
  }
  return process;
}

void execute(const std::string& program, std::vector<std::string> argv,
             const std::map<std::string, std::string>& environment) {
  std::vector<std::string> variables = texts_of(environment);
  ::execve(program.c_str(), pointers_to(argv).data(), pointers_to(variables).data());
}

std::optional<Exit> reap(pid_t child) {
  siginfo_t about = {};
  if (::waitid(P_PID, static_cast<id_t>(child), &about, WEXITED | WNOHANG | WNOWAIT) != 0)
    return Exit{.status = kNotFound};
  if (about.si_pid == 0) return {};
  // The group's number cannot be reused before the child is reaped, so this signals no other group.
  ::kill(-child, SIGTERM);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return Exit{.status = kSignalBase + WTERMSIG(status)};
  return Exit{.status = WEXITSTATUS(status)};
}

void Watch::on(int descriptor, short events, std::function<void()> then) {
  entries_.push_back({descriptor, events, 0});
  calls_.push_back(std::move(then));
}

void Watch::at(Clock::time_point time) { time_ = std::min(time, time_); }

void Watch::wait() {
  const int limit = milliseconds_until(std::exchange(time_, Clock::time_point::max()));
  const int ready = ::poll(entries_.data(), static_cast<nfds_t>(entries_.size()), limit);
  const std::vector<pollfd> entries = std::exchange(entries_, {});
  const std::vector<std::function<void()>> calls = std::exchange(calls_, {});
  for (std::size_t i = 0; ready > 0 && i < entries.size(); ++i)
    if (entries[i].revents != 0) calls[i]();
}

Signals::Signals() {
  gathered = make_pipe();
  for (const Descriptor* end : {&gathered.reader, &gathered.writer}) do_not_block(*end);
  gathered_writer = gathered.writer.get();
  struct sigaction action = {};
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  action.sa_handler = gather;
  for (const int number : kGathered) ::sigaction(number, &action, &before_[number]);
  const struct sigaction& hangup = before_[SIGHUP];
  if (hangup.sa_handler == SIG_IGN) ::sigaction(SIGHUP, &hangup, nullptr);
  action.sa_handler = SIG_IGN;
  for (const int number : kIgnored) ::sigaction(number, &action, &before_[number]);
}

Signals::~Signals() {
  for (const auto& [number, before] : before_) ::sigaction(number, &before, nullptr);
  gathered = {};
}

int Signals::descriptor() const { return gathered.reader.get(); }

void Signals::heed(std::string_view consequence) {
  for (const int number : take())
    if (number != SIGCHLD && number != SIGWINCH)
      throw Error(fmt::format("signal {} ({}) ended the command{}", number, ::strsignal(number),
                              consequence));
}

std::vector<int> Signals::take() {
  std::array<char, 256> bytes = {};
  std::vector<int> numbers;
  for (ssize_t n = 0; (n = read_some(descriptor(), bytes.data(), bytes.size())) > 0;) {
    for (const char byte : std::span(bytes).first(static_cast<std::size_t>(n)))
      if (std::ranges::find(numbers, byte) == numbers.end()) numbers.push_back(byte);
  }
  return numbers;
}

}  // namespace mccl::cli
