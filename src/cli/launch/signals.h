// Turns signals into a descriptor that a loop can wait for.
#pragma once

#include <array>
#include <csignal>
#include <string_view>
#include <vector>

namespace mccl::cli::launch {

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

}  // namespace mccl::cli::launch
