// The one loop of a command: waits for descriptors, times and signals.
#pragma once

#include <poll.h>

#include <array>
#include <csignal>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace mccl::cli {

/// The events that a loop waits for. They are registered again before each wait.
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
  std::optional<Clock::time_point> time_;
};

/// While an object lives, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD and SIGWINCH
/// are collected and have no other effect. SIGPIPE and stops from the keyboard are ignored, because
/// hosts would consider a stopped launcher dead. SIGHUP stays ignored if it was ignored before, as
/// under nohup. Only one object may exist at a time.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  /// Becomes readable when signals have arrived.
  int descriptor() const;
  /// Returns the signals that have arrived, each once.
  std::vector<int> take();
  /// Takes the signals that have arrived. Throws Error if one of them asks the program to end; the
  /// message ends with `consequence`.
  void heed(std::string_view consequence = {});

 private:
  static constexpr int kSignals = 12;
  std::array<struct sigaction, kSignals> before_ = {};
};

}  // namespace mccl::cli
