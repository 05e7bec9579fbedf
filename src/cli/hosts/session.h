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

/// How to reach hosts; the same for all.
struct Reaching {
  Variables environment;
  std::vector<std::string> ssh_arguments;
  bool verbose = false;  ///< Tell of all that hosts are told.
};

/// Lets this process have so many sessions more, each of which takes a few open files. Throws Error
/// where the system does not let it, before any of them begins.
void make_room_for_sessions(std::size_t sessions);

class Session {
 public:
  using Hear = std::function<void(std::string_view line)>;

  /// Begins to connect. `hear` gets each line of standard output, without its end. A login that
  /// the server drops because many came at once is tried again as watch() is called. `reaching`
  /// outlives the session.
  Session(const Host& host, const Reaching& reaching, Hear hear);
  /// Ends the shell, or ssh, without waiting for what it does.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void tell(std::string_view text);
  /// No more is told: the shell ends when it has done what it was told.
  void tell_no_more();

  void watch(launch::Watch& watch);
  /// Its output has ended, and no login will be tried again.
  bool ended() const { return !waits_ && process_.output.get() < 0; }
  /// What ssh, or the shell, says of itself; with the cure, for people.
  std::string complaint() const;
  /// What a program that it has become says on standard error, for people.
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
  bool waits_ = false;  ///< For the next login; there is no process.
  bool heard_ = false;  ///< A line of output, so the login has succeeded.
  launch::Lines said_;
  std::string told_;  ///< Everything before the first line was heard, for the next login.
  std::string unsent_;
  bool no_more_ = false;
  std::string complaint_;
};

}  // namespace mccl::cli::hosts
