// Exchanges lines of text with a child process, such as a remote shell.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "cli/kit/process.h"
#include "cli/kit/ssh.h"

namespace mccl::cli {

/// Returns the length of the longest prefix of `text` that does not end inside a UTF-8 character.
/// Bytes that are not valid UTF-8 count as characters.
std::size_t whole_characters(std::string_view text);

/// Splits a stream into lines. The views that it returns are valid until the next call of space().
class Lines {
 public:
  /// Maximum length of a line, in bytes. A longer line is taken in pieces of about this length.
  static constexpr std::size_t kLongest = std::size_t{4} << 20;

  /// Returns free space of at least 64 KiB to read into.
  std::span<char> space();
  /// Adds the first `bytes` bytes of space() to the contents.
  void filled(std::size_t bytes) { end_ += bytes; }
  /// Removes and returns all complete lines with their line ends, or a piece of an unfinished line
  /// that has kLongest bytes.
  std::string_view take_lines();
  /// Removes and returns all whole characters, so that an unfinished line can be shown.
  std::string_view take_characters();
  std::string_view take_rest();
  bool empty() const { return begin_ == end_; }

 private:
  std::string_view take(std::size_t bytes);
  std::string_view rest() const { return {bytes_.data() + begin_, end_ - begin_}; }

  std::vector<char> bytes_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::size_t searched_ = 0;  ///< Bytes after begin_ that are known to hold no line end.
};

void append_with_prefix(std::string& to, std::string_view prefix, std::string_view lines);

/// A child process that receives text and answers in lines, such as a remote shell. watch() and
/// collect() advance its state:
///
///   waiting --its turn to log in--> started --first line--> open
///   started --the server dropped the login, because many arrived together--> waiting, with
///   increasing delays
///   waiting --end()--> ended;  started, open --the process ended--> ended
class Dialogue {
 public:
  enum class State {
    waiting,  ///< The process has not been started, or will be started again.
    started,  ///< The process has sent nothing yet.
    open,     ///< The process has sent a line.
    ended,
  };
  using Start = std::function<ChildProcess()>;
  using Hear = std::function<void(std::string_view line)>;
  using Reaped = std::function<void(pid_t process)>;

  /// `start` is called again for each retry. `hear` receives each line of standard output, without
  /// its line end, and must not destroy this object. `reaped` receives the id of each process that
  /// has been reaped. `logins`, which may be null, limits the logins in progress.
  Dialogue(Start start, Hear hear, Logins* logins = nullptr, Reaped reaped = {})
      : start_(std::move(start)),
        hear_(std::move(hear)),
        logins_(logins),
        reaped_(std::move(reaped)) {}
  /// Sends SIGTERM to the process, and SIGKILL if the process still runs after one second.
  ~Dialogue();
  Dialogue(const Dialogue&) = delete;
  Dialogue& operator=(const Dialogue&) = delete;

  /// Starts the process if `logins` permits another login, and registers its streams with `watch`.
  /// `logins` counts the login at `machines`; while these are unknown (empty), the login waits.
  void watch(Watch& watch, const std::vector<std::string>& machines = {});
  /// Sends the text as soon as the process can take it; drops it if the input is closed.
  void send(std::string_view text);
  /// Closes the process's input once all text has been sent.
  void end_input();
  bool has_unsent() const { return !unsent_.empty(); }
  /// Handles what the process has sent. Returns false if nothing has arrived.
  bool read();
  /// Reaps the process if it has ended, and reads the rest of its output. Returns true once: when
  /// the process has ended and will not be started again.
  bool collect();
  /// Sends the signal to the process. If the process has not been started, prevents its start.
  void end(int signal);

  bool ended() const { return state_ == State::ended; }
  /// True if the process waits for its first start.
  bool waits_for_turn() const { return state_ == State::waiting && tries_ == 0; }
  /// The first 8 KiB of standard error of the process that was started last.
  const std::string& complaint() const { return complaint_; }

 private:
  void begin();
  void send();
  void read_error();
  void give_turn_back();
  void forget_process();

  const Start start_;
  const Hear hear_;
  Logins* const logins_;
  const Reaped reaped_;
  State state_ = State::waiting;
  int tries_ = 0;                    ///< Number of starts.
  Clock::time_point next_try_ = {};  ///< Time before which the process must not be started.
  std::vector<std::string> turn_;    ///< Machines at which `logins_` counts this login.
  ChildProcess process_;
  Lines said_;
  std::string complaint_;
  std::string unsent_;
  std::string unheard_;  ///< Text that is sent again if the process is started again.
  bool no_more_ = false;
  bool is_ending_ = false;  ///< True once end() was called.
};

struct Captured {
  std::string output;  ///< The last bytes of standard output, and of standard error if captured.
  int status = 0;      ///< Exit status, or 128 + the signal number if the program was killed.
  bool late = false;   ///< True if the program was ended at the time limit.
};

struct CaptureLimits {
  Clock::time_point time;                    ///< Time at which the program gets SIGTERM.
  std::chrono::seconds grace{0};             ///< Time between SIGTERM and SIGKILL.
  std::size_t bytes = std::size_t{1} << 20;  ///< Maximum number of output bytes that are kept.
};

/// Runs the program without input, until it ends. Also captures standard error if `with_errors`.
/// If one of `signals`, which may be null, asks this process to end, kills the program and throws
/// Error.
Captured capture(const ProcessPlan& plan, const CaptureLimits& limits, bool with_errors,
                 Signals* signals = nullptr);

}  // namespace mccl::cli
