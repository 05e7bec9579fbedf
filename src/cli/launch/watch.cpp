#include "cli/launch/watch.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace mccl::cli::launch {

void Watch::on(int descriptor, short events, std::function<void()> then) {
  entries_.push_back({descriptor, events, 0});
  calls_.push_back(std::move(then));
}

void Watch::at(Clock::time_point time) { time_ = std::min(time, time_.value_or(time)); }

void Watch::wait() {
  int limit = -1;
  if (time_) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*time_ - Clock::now());
    limit = static_cast<int>(std::clamp<std::chrono::milliseconds::rep>(left.count(), 0, 60'000));
  }
  const int ready = ::poll(entries_.data(), static_cast<nfds_t>(entries_.size()), limit);
  const std::vector<pollfd> entries = std::exchange(entries_, {});
  const std::vector<std::function<void()>> calls = std::exchange(calls_, {});
  time_.reset();
  for (std::size_t i = 0; ready > 0 && i < entries.size(); ++i)
    if (entries[i].revents != 0) calls[i]();
}

}  // namespace mccl::cli::launch
