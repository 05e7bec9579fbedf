// Child processes whose standard streams are pipes or a terminal, and how they end.
#pragma once

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/types.h>

#include <csignal>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/descriptor.h"

namespace mccl::cli {

struct Pipe {
  Descriptor reader;
  Descriptor writer;
};

/// Makes a pipe whose ends are closed by exec.
Pipe make_pipe();
void do_not_block(const Descriptor& descriptor);

/// Calls read(2), and retries if a signal interrupts it.
ssize_t read_some(int descriptor, void* to, std::size_t limit);

/// Exit statuses with which a shell reports that signal N killed a process (kSignalBase + N), and
/// that a program is not executable, or not found.
inline constexpr int kSignalBase = 128;
inline constexpr int kCannotExecute = 126;
inline constexpr int kNotFound = 127;

struct Exit {
  int status = 0;  ///< Exit status, or 128 + the signal number if the process was killed.
  /// True if the connection to the process's host was lost, so the real exit status is unknown.
  bool connection_lost = false;

  bool good() const { return status == 0 && !connection_lost; }
};

/// The terminal that a process gets as its standard input and output.
struct TerminalPlan {
  winsize size;       ///< Size in characters.
  bool echo = false;  ///< True if the terminal echoes its input.
};

struct ProcessPlan {
  std::vector<std::string> argv;  ///< argv[0] is the path of the program.
  std::string directory = {};     ///< Empty: the current directory.
  std::map<std::string, std::string> environment = {};
  /// Empty: standard input and output are pipes. Standard error is a pipe even with a terminal.
  std::optional<TerminalPlan> terminal = {};
  /// CPUs that the child may use. Empty: the CPUs that its parent may use.
  std::vector<int> processors = {};
  /// True if the process gets no input, and writes to this process's standard output and error.
  bool inherits_streams = false;
};

/// A running child, which leads a session of its own. The descriptors are the parent's non-blocking
/// ends of the child's streams; they are empty if the child inherits its streams.
struct ChildProcess {
  pid_t id = -1;
  Descriptor input;
  Descriptor output;
  Descriptor error;
  bool has_terminal = false;  ///< True if `input` and `output` are the same terminal.
  /// Token at the start of each line of a rank's start script (see RankWords in cli/launch). Empty
  /// if there are no such lines.
  std::string token = {};
};

/// Raises this process's limit of open files, but not its children's, so that it can open `files`
/// more. Throws Error if the system refuses; the message says that `what` needs the files, and
/// gives `fewer` as advice.
void make_room_for_files(std::size_t files, std::string_view what, std::string_view fewer);

/// Throws Error if no process can be created. If the program cannot be executed, the child reports
/// that on its standard error and exits with status 126 or 127, like a shell.
ChildProcess start_process(const ProcessPlan& plan);

/// Replaces this process with the program. Returns only on failure, with the cause in errno.
void execute(const std::string& program, std::vector<std::string> argv,
             const std::map<std::string, std::string>& environment);

/// Returns how the child ended, or nothing if it still runs. Sends SIGTERM to the rest of its
/// process group when it has ended.
std::optional<Exit> reap(pid_t child);

/// The events that a loop waits for. The caller must register them again before each wait.
class Watch {
 public:
  /// `then` is called when poll() reports any of `events`, or an error of the descriptor.
  void on(int descriptor, short events, std::function<void()> then);
  /// Limits the next wait: it ends at `time` at the latest.
  void at(Clock::time_point time);
  /// Waits once, calls the functions whose descriptors are ready, and removes all registrations.
  void wait();

 private:
  std::vector<pollfd> entries_;
  std::vector<std::function<void()>> calls_;
  Clock::time_point time_ = Clock::time_point::max();
};

/// While an object lives, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD and SIGWINCH
/// are collected and have no other effect. SIGHUP stays ignored if it was, as under nohup. SIGPIPE
/// is ignored, and also SIGTSTP, SIGTTIN and SIGTTOU, because hosts would consider a stopped
/// launcher dead. Only one object may exist at a time.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  /// Returns a descriptor that becomes readable when a signal arrives.
  int descriptor() const;
  /// Returns the signals that have arrived since the last call, each once.
  std::vector<int> take();
  /// Throws Error if a signal asks the program to end; the message ends with `consequence`.
  void heed(std::string_view consequence = {});

 private:
  std::map<int, struct sigaction> before_;  ///< The earlier actions, keyed by signal.
};

}  // namespace mccl::cli
