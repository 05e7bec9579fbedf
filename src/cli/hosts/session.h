// A shell on this machine or on another host. It runs the scripts that it is sent, and its output
// is read line by line.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cli/kit/dialogue.h"
#include "cli/kit/host.h"
#include "cli/kit/process.h"
#include "cli/kit/ssh.h"
#include "cli/kit/watch.h"

namespace mccl::cli::hosts {

using Variables = std::map<std::string, std::string>;

/// Options for connecting to hosts, the same for all hosts.
struct Reaching {
  Variables environment;
  std::vector<std::string> ssh_arguments;
  bool verbose = false;  ///< True if everything that is sent to hosts is reported.
};

/// Raises the limit of open files for `sessions` more sessions. Called before any of them starts.
/// Throws Error if the system refuses.
void make_room_for_sessions(std::size_t sessions);

class Session {
 public:
  using Hear = std::function<void(std::string_view line)>;

  /// Starts to connect. `hear` receives each line of standard output, without its line end. If the
  /// server drops a login because many arrived together, watch() retries it. `reaching` must
  /// outlive the session.
  Session(const Host& host, const Reaching& reaching, Hear hear);
  /// Ends the shell, or ssh, with SIGTERM, and after one second with SIGKILL.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void tell(std::string_view text);
  /// Closes the shell's input once all pending text has been sent. The shell ends when it has run
  /// everything.
  void tell_no_more() { shell_.tell_no_more(); }

  void watch(Watch& watch);
  /// True if the shell's output has ended and no login will be retried.
  bool ended() const { return !waits_ && shell_.output_ended(); }
  /// Error message of ssh, or of the shell itself, with advice for the user.
  std::string complaint() const;
  /// Standard error of the program that has replaced the shell, for the user.
  std::string error_text() const;

 private:
  void start();
  void hear(std::string_view line);
  void end_login();
  /// Kills the process and waits for its end.
  void kill();

  const Host host_;
  const bool here_;
  Hear hear_;
  const Reaching& reaching_;
  Dialogue shell_;
  LoginRetry retry_;
  bool waits_ = false;  ///< True while there is no process and a login will be retried.
  bool heard_ = false;  ///< True once a line of output was received, so the login has succeeded.
  /// Text that was sent before the first line of output. Sent again if the login fails and is
  /// repeated.
  std::string told_;
};

}  // namespace mccl::cli::hosts
