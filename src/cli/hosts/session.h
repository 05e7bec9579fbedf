// A shell on a host, this machine or another, that takes scripts and answers in lines.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cli/launch/host.h"
#include "cli/launch/lines.h"
#include "cli/launch/process.h"
#include "cli/launch/ssh.h"
#include "cli/launch/watch.h"

namespace mccl::cli::hosts {

using launch::Host;
using Variables = std::map<std::string, std::string>;

/// Options for connecting to hosts, the same for all hosts.
struct Reaching {
  Variables environment;
  std::vector<std::string> ssh_arguments;
  bool verbose = false;  ///< Report everything that is sent to hosts.
};

/// Raises the limit of open files for `sessions` more sessions. Throws Error, before any of them
/// starts, if the system refuses.
void make_room_for_sessions(std::size_t sessions);

class Session {
 public:
  using Hear = std::function<void(std::string_view line)>;

  /// Starts to connect. `hear` receives each line of standard output, without its line end. If the
  /// server drops a login because many came at once, watch() retries it. `reaching` must outlive
  /// the session.
  Session(const Host& host, const Reaching& reaching, Hear hear);
  /// Ends the shell, or ssh, with SIGTERM, and after one second with SIGKILL.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void tell(std::string_view text);
  /// Closes the shell's input after all pending text. The shell ends when it has run what it was
  /// sent.
  void tell_no_more();

  void watch(launch::Watch& watch);
  /// True if the shell's output has ended and no login will be retried.
  bool ended() const { return !waits_ && process_.output.get() < 0; }
  /// Error message of ssh, or of the shell itself, with advice for the user.
  std::string complaint() const;
  /// Standard error of the program that has replaced the shell, for the user.
  std::string error_text() const;

 private:
  void start();
  void send();
  void read_output();
  void end_login();
  void read_error();

  const Host host_;
  const bool here_;
  Hear hear_;
  const Reaching& reaching_;
  launch::Process process_;
  launch::LoginRetry retry_;
  bool waits_ = false;  ///< Waits for the next login; there is no process.
  bool heard_ = false;  ///< A line of output was received, so the login has succeeded.
  launch::Lines said_;
  std::string told_;  ///< Sent before the first line was heard; repeated at the next login.
  std::string unsent_;
  bool no_more_ = false;
  std::string complaint_;
};

}  // namespace mccl::cli::hosts
