// A call that makes no progress, and what a member reports about its own calls meanwhile.
#pragma once

#include <utility>

#include "base/clock.h"
#include "base/rank.h"
#include "engine/calls/call.h"

namespace mccl::engine {

/// The answer of a member to a probe.
struct Reported {
  Call last;              ///< Its last collective; its sequence is 0 if there is none.
  bool is_in_it = false;  ///< True if that collective has not ended there.
  /// A member that its collective or, if `by_message` is set, its oldest pending message needs.
  /// Invalid if there is none.
  GroupRank waits_for = {};
  bool by_message = false;
  Clock::time_point heard = {};
};

struct Wait {
  Clock::time_point since;         ///< Time of the last progress.
  Clock::time_point next_warning;  ///< Time at which the next warning is due.

  /// Returns the time at which the next warning is due for a call whose last progress was at
  /// `moved`.
  Clock::time_point next(Clock::time_point moved, Clock::duration warn_after) const {
    return since == moved ? next_warning : moved + warn_after;
  }
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
