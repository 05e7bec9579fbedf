// A connection to another machine: an ssh that others share, with the session that keeps it open.
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

/// Begins in `waiting` and moves on as watch() and collect() are called. A login that the server
/// drops because too many log in at once goes back to `waiting`, with growing pauses.
class SshConnection {
 public:
  enum class State {
    waiting,     ///< For its turn to log in.
    logging_in,  ///< ssh runs; the session has said nothing yet.
    open,        ///< The session has said its first line, so sessions of ranks may follow.
    ended,
  };
  using Start = std::function<Process()>;
  using Hear = std::function<void(SshConnection& from, std::string_view words)>;

  /// `start` starts the ssh whose socket is `socket`. `hear` gets each line of the session that
  /// begins with the token, without it; all others come from the host's own start-up files.
  SshConnection(std::string socket, std::string token, Logins& logins, Guardian& guardian,
                Start start, Hear hear);

  /// `machines` are those at which it logs in; empty while they are not known, and then it waits.
  void watch(Watch& watch, const std::vector<std::string>& machines);
  /// Returns true once: when the connection has just ended for good.
  bool collect();
  /// Reads what the session has said.
  void read();

  void tell(const std::string& text);
  /// The session reads to the end of what it was told and no further.
  void tell_no_more();
  /// Ends an ssh that runs with the signal; one that waits for its turn ends at once.
  void end(int signal);

  State state() const { return state_; }
  bool open() const { return state_ == State::open; }
  bool ended() const { return state_ == State::ended; }
  /// Whether it has not begun because others log in.
  bool waits_for_turn() const { return state_ == State::waiting && !retry_.has_begun(); }
  bool has_unsent() const { return !unsent_.empty(); }
  const std::string& socket() const { return socket_; }
  /// What ssh said on standard error, at its last try.
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
  std::vector<std::string> places_;  ///< Machines at which it takes a place of `logins_`.
  LoginRetry retry_;
  Process process_;
  Lines said_;
  std::string complaint_;
  std::string unsent_;
  bool no_more_ = false;
};

}  // namespace mccl::cli::launch
