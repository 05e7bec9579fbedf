// The events that a loop waits for. They are registered again before each wait.
#pragma once

#include <poll.h>

#include <functional>
#include <optional>
#include <vector>

#include "base/clock.h"

namespace mccl::cli::launch {

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

}  // namespace mccl::cli::launch
