// Walks schedules in time: when each step begins and ends, given the times of single steps.
#pragma once

#include <span>

#include "schedule/step_times.h"

namespace mccl::schedule {

struct Walked {
  double seconds = 0;  ///< Time until the last step has ended.
  /// Time for which the busiest resource is busy: a direction of a link or cable, or a rank's
  /// processor. If the same steps take place n times, the whole takes `busiest` longer each time.
  double busiest = 0;
  bool complete = false;  ///< True if all steps have ended.
};

/// Walks the schedules of all ranks, in rank order. If there is only one schedule in a larger
/// group, it is walked as if all ranks did the same at the same time: its n-th receive takes the
/// message of its own n-th send, and the other ranks of the node arrive when it does.
///
/// A step begins as soon as the steps that it waits for have ended and its resource is free. If
/// several steps wait for a resource, the one that waited longest is first. The sends of a rank
/// share one resource. Its receives and the arithmetic on received data share another one, and all
/// its other steps a third one. If `cables` is not null, messages also occupy the cables on their
/// way.
Walked walk(std::span<const Schedule> schedules, const Problem& problem, const StepTimes& times,
            const CableMap* cables);

}  // namespace mccl::schedule
