// A connection to another machine: a shared ssh, with the session that keeps it open.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/launch/guardian.h"
#include "cli/launch/lines.h"
#include "cli/launch/logins.h"
#include "cli/launch/process.h"
#include "cli/launch/ssh.h"
#include "cli/launch/watch.h"

namespace mccl::cli::launch {

/// Starts as `waiting`; watch() and collect() advance its state. If the server drops a login
/// because too many arrive together, the state returns to `waiting`, with increasing delays.
class SshConnection {
 public:
  enum class State {
    waiting,     ///< Waits for its turn to log in.
    logging_in,  ///< ssh runs; the session has sent nothing yet.
    open,        ///< The session has sent its first line; sessions of ranks may follow.
    ended,
  };
  using Start = std::function<Process()>;
  using Hear = std::function<void(SshConnection& from, std::string_view words)>;

  /// `start` starts the ssh whose socket is `socket`. `hear` receives each line of the session that
  /// begins with the token, without the token. All other lines are from the host's start-up files
  /// and are ignored.
  SshConnection(std::string socket, std::string token, Logins& logins, Guardian& guardian,
                Start start, Hear hear);

  /// Logs in if it is this connection's turn, and registers with `watch`. `machines` are those that
  /// the login involves. While they are unknown, `machines` is empty and the connection waits.
  void watch(Watch& watch, const std::vector<std::string>& machines);
  /// Reaps ssh if it has ended. Returns true only once: when the connection has ended and will not
  /// be retried.
  bool collect();
  /// Reads and handles what the session has sent.
  void read();

  void tell(const std::string& text);
  /// Closes the session's input after everything passed to tell() has been sent.
  void tell_no_more();
  /// Sends the signal to a running ssh. A connection that waits for its turn ends immediately.
  void end(int signal);

  State state() const { return state_; }
  bool open() const { return state_ == State::open; }
  bool ended() const { return state_ == State::ended; }
  /// True if it has not tried to log in yet, because other logins are in progress.
  bool waits_for_turn() const { return state_ == State::waiting && !retry_.has_begun(); }
  bool has_unsent() const { return !unsent_.empty(); }
  const std::string& socket() const { return socket_; }
  /// ssh's standard error, from its last try.
  const std::string& complaint() const { return complaint_; }

 private:
  void log_in(const std::vector<std::string>& machines);
  void give_place_back();
  void read_errors();
  void send();

  const std::string socket_;
  const std::string token_;
  Logins& logins_;
  Guardian& guardian_;
  Start start_;
  Hear hear_;
  State state_ = State::waiting;
  std::vector<std::string> places_;  ///< Machines at which `logins_` counts this login.
  LoginRetry retry_;
  Process process_;
  Lines said_;
  std::string complaint_;
  std::string unsent_;
  bool no_more_ = false;
};

}  // namespace mccl::cli::launch
