// Signals, turned into something that a loop can wait for.
#pragma once

#include <array>
#include <csignal>
#include <string_view>
#include <vector>

namespace mccl::cli::launch {

/// While it lives, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD and SIGWINCH are
/// gathered instead of acted on, and SIGPIPE and stops from the keyboard are ignored: a stopped
/// launcher would be taken for a dead one. SIGHUP stays ignored where it was, as under nohup. One
/// at a time.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  /// Becomes readable when there are some.
  int descriptor() const;
  /// Those that came, each once.
  std::vector<int> take();
  /// Takes them. Throws Error for one that is to end the program; `consequence` ends its text.
  void heed(std::string_view consequence = {});

 private:
  static constexpr int kSignals = 12;
  std::array<struct sigaction, kSignals> before_ = {};
};

}  // namespace mccl::cli::launch
