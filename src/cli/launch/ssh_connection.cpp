#include "cli/launch/ssh_connection.h"

#include <utility>

namespace mccl::cli::launch {

SshConnection::SshConnection(std::string socket, std::string token, Logins& logins,
                             Guardian& guardian, Start start, Hear hear)
    : socket_(std::move(socket)),
      token_(std::move(token)),
      logins_(logins),
      guardian_(guardian),
      start_(std::move(start)),
      hear_(std::move(hear)) {}

void SshConnection::watch(Watch& watch, const std::vector<std::string>& machines) {
  if (state_ == State::waiting && !machines.empty()) {
    if (!retry_.is_due()) {
      watch.at(retry_.next_try());
    } else if (logins_.begin(machines)) {
      places_ = machines;
      retry_.begin();
      session_.begin(start_());
      state_ = State::logging_in;
    }
  }
  session_.watch(watch);
}

void SshConnection::give_place_back() { logins_.end(std::exchange(places_, {})); }

void SshConnection::hear(std::string_view line) {
  if (!line.starts_with(token_ + " ")) return;
  line.remove_prefix(token_.size() + 1);
  if (state_ == State::logging_in) {
    state_ = State::open;
    give_place_back();
  }
  if (line == "ready") state_ = State::ready;
  hear_(*this, line);
}

void SshConnection::end(int signal) {
  if (state_ == State::waiting) {
    state_ = State::ended;
  } else if (!ended()) {
    retry_.give_up();
    session_.end(signal);
  }
}

bool SshConnection::collect() {
  const pid_t ssh = session_.id();
  if (!session_.reap()) return false;
  guardian_.forget(ssh);
  const bool again = state_ == State::logging_in && retry_.tries_again(complaint());
  if (state_ == State::logging_in) give_place_back();
  state_ = again ? State::waiting : State::ended;
  return !again;
}

}  // namespace mccl::cli::launch
