// Helpers for poll(2) with a deadline.
#pragma once

#include <poll.h>

#include <algorithm>
#include <chrono>

#include "base/clock.h"

namespace mccl::rendezvous {

/// kAttemptLimit is the time limit of one attempt to connect. The pause between attempts starts at
/// kFirstBackOff and doubles up to kLongestBackOff.
inline constexpr Clock::duration kAttemptLimit = std::chrono::seconds(2);
inline constexpr Clock::duration kFirstBackOff = std::chrono::milliseconds(20);
inline constexpr Clock::duration kLongestBackOff = std::chrono::milliseconds(500);

/// Returns a timeout for poll; -1 means none. It is rounded up, so that poll does not return just
/// before the deadline.
inline int milliseconds_until(Clock::time_point deadline, Clock::time_point now = Clock::now()) {
  if (deadline == Clock::time_point::max()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now).count();
  return static_cast<int>(std::clamp<long long>(left, 0, 1 << 30));
}

/// Blocks until the descriptor has one of the events. Returns false if the deadline passed first.
inline bool wait_for(int descriptor, short events, Clock::time_point deadline) {
  for (;;) {
    pollfd entry = {descriptor, events, 0};
    if (::poll(&entry, 1, milliseconds_until(deadline)) > 0) return true;
    if (Clock::now() >= deadline) return false;
  }
}

}  // namespace mccl::rendezvous
