// A connection to another machine: a shared ssh, with the session that keeps it open.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/kit/dialogue.h"
#include "cli/kit/ssh.h"
#include "cli/launch/guardian.h"

namespace mccl::cli::launch {

/// watch() and collect() advance its state:
///
///   waiting --its turn to log in--> logging_in --first line--> open --"ready"--> ready
///   logging_in --dropped because many logins arrived together--> waiting, with increasing delays
///   waiting --end()--> ended;  logging_in, open, ready --ssh ended--> ended
class SshConnection {
 public:
  enum class State {
    waiting,     ///< Waits for its turn to log in.
    logging_in,  ///< ssh runs; the session has sent nothing yet.
    open,        ///< The session has sent its first line.
    ready,       ///< The session has said "ready": sessions of ranks may follow.
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
  /// Sends the signal to a running ssh. A connection that waits for its turn ends immediately.
  void end(int signal);

  bool open() const { return state_ == State::open || ready(); }
  bool ready() const { return state_ == State::ready; }
  bool ended() const { return state_ == State::ended; }
  /// True if it has not tried to log in yet, because other logins are in progress.
  bool waits_for_turn() const { return state_ == State::waiting && !retry_.has_begun(); }
  /// The session's own text; complaint() is ssh's standard error, from its last try.
  Dialogue& session() { return session_; }
  const std::string& complaint() const { return session_.complaint(); }
  const std::string& socket() const { return socket_; }

 private:
  void hear(std::string_view line);
  void give_place_back();

  const std::string socket_;
  const std::string token_;
  Logins& logins_;
  Guardian& guardian_;
  Start start_;
  Hear hear_;
  State state_ = State::waiting;
  std::vector<std::string> places_;  ///< Machines at which `logins_` counts this login.
  LoginRetry retry_;
  Dialogue session_{[this](std::string_view line) { hear(line); }};
};

}  // namespace mccl::cli::launch
