#include "cli/launch/ssh_connection.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "cli/launch/ssh.h"

namespace mccl::cli::launch {
namespace {

constexpr std::size_t kMostComplaint = 8192;

}  // namespace

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
      log_in(machines);
    }
  }
  if (process_.output.get() >= 0) watch.on(process_.output.get(), POLLIN, [this] { read(); });
  if (process_.error.get() >= 0) watch.on(process_.error.get(), POLLIN, [this] { read_errors(); });
  if (open() && !unsent_.empty() && process_.input.get() >= 0)
    watch.on(process_.input.get(), POLLOUT, [this] { send(); });
}

void SshConnection::log_in(const std::vector<std::string>& machines) {
  places_ = machines;
  retry_.begin();
  complaint_.clear();
  said_ = {};
  process_ = start_();
  state_ = State::logging_in;
}

void SshConnection::give_place_back() { logins_.end(std::exchange(places_, {})); }

void SshConnection::read_errors() {
  std::array<char, 4096> bytes;
  const ssize_t n = read_some(process_.error.get(), bytes.data(), bytes.size());
  if (n > 0 && complaint_.size() < kMostComplaint)
    complaint_.append(bytes.data(), static_cast<std::size_t>(n));
  if (n == 0) process_.error.close();
}

void SshConnection::read() {
  const std::span<char> space = said_.space();
  const ssize_t n = read_some(process_.output.get(), space.data(), space.size());
  if (n == 0) process_.output.close();
  if (n <= 0) return;
  said_.filled(static_cast<std::size_t>(n));
  std::string_view lines = said_.take_lines();
  while (!lines.empty()) {
    const std::size_t end = lines.find('\n');
    std::string_view line = lines.substr(0, end);
    lines.remove_prefix(end == lines.npos ? lines.size() : end + 1);
    if (!line.starts_with(token_ + " ")) continue;
    line.remove_prefix(token_.size() + 1);
    if (state_ == State::logging_in) {
      state_ = State::open;
      give_place_back();
      send();
    }
    hear_(*this, line);
  }
}

void SshConnection::tell(const std::string& text) {
  unsent_ += text;
  send();
}

void SshConnection::tell_no_more() {
  no_more_ = true;
  send();
}

void SshConnection::send() {
  const int input = process_.input.get();
  if (input < 0 || !open()) return;
  if (!unsent_.empty()) {
    const ssize_t n = ::write(input, unsent_.data(), unsent_.size());
    if (n > 0) unsent_.erase(0, static_cast<std::size_t>(n));
    if (n < 0 && errno != EAGAIN && errno != EINTR) unsent_.clear();
  }
  if (no_more_ && unsent_.empty()) process_.input.close();
}

void SshConnection::end(int signal) {
  if (state_ == State::waiting) {
    state_ = State::ended;
  } else if (!ended()) {
    retry_.give_up();
    ::kill(process_.id, signal);
  }
}

bool SshConnection::collect() {
  if (state_ == State::waiting || ended() || !launch::collect(process_.id)) return false;
  guardian_.forget(process_.id);
  for (std::size_t before = 0; process_.error.get() >= 0; before = complaint_.size()) {
    read_errors();
    if (complaint_.size() == before) break;
  }
  read();
  const bool again = state_ == State::logging_in && retry_.tries_again(complaint_);
  if (state_ == State::logging_in) give_place_back();
  process_ = {};
  if (!again) {
    state_ = State::ended;
    return true;
  }
  state_ = State::waiting;
  return false;
}

}  // namespace mccl::cli::launch
