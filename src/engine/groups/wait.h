// A call that makes no progress.
#pragma once

#include <utility>

#include "base/clock.h"

namespace mccl::engine {

struct Wait {
  Clock::time_point since;         ///< Time of the last progress.
  Clock::time_point next_warning;  ///< Time at which the next warning is due.

  /// Returns true if a warning is due for a call whose last progress was at `moved`. The first is
  /// due after `warn_after`, and the next ones whenever the time without progress has doubled.
  bool is_due(Clock::time_point now, Clock::time_point moved, Clock::duration warn_after) {
    if (std::exchange(since, moved) != moved) next_warning = moved + warn_after;
    if (now < next_warning) return false;
    next_warning = now + (now - moved);
    return true;
  }
};

}  // namespace mccl::engine
