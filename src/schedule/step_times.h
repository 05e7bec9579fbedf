// The times of the steps of a schedule. They are computed from facts (Facts), most of which are
// measured, and from assumptions, whose effects are too small to be measured at the start of a job.
// An assumption is a ratio or a cache size and never a time, so that times scale with the
// measurements. Its comment states its source and how strongly choices depend on it.
#pragma once

#include <span>

#include "schedule/choose.h"

namespace mccl::schedule {

/// Bytes that a rank moves through its node's window, and properties of the rank's buffers.
struct Handled {
  double copied = 0;     ///< Bytes copied or added between the rank's buffers and the windows.
  double of_memory = 0;  ///< Bytes read from and written to the buffers if no cache holds them.
  double held = 0;       ///< Size of the rank's buffers, in bytes.
};

/// All times are in seconds, and all sizes in bytes unless they are in a Region.
class StepTimes {
 public:
  /// The arguments must outlive this object. `problem` is the real problem, even if the schedule of
  /// a smaller problem is simulated by walk(). `scale` is the ratio of the sizes of regions in the
  /// real problem to those in the steps.
  StepTimes(const Problem& problem, std::size_t element_bytes, const Facts& facts, double scale);

  double bytes(const Region& region) const {
    return scale_ * static_cast<double>(byte_count(region, element_bytes_, problem_.coding));
  }

  /// Latency of a message, unless it travels along the cables of a CableMap.
  double latency() const { return latency_; }
  /// Time for which a message occupies the sender's outgoing and the receiver's incoming link.
  double message(double bytes) const;
  /// Factor by which a message takes longer if its receiver receives from `flows` ranks at the same
  /// time.
  double crowding(int flows) const;
  /// Extra time of data that the rank keeps in scratch memory and forwards.
  double keeping(const Schedule& schedule) const;
  /// Time of the arithmetic of a recv_reduce or fold step; 0 for other steps.
  double arithmetic(const Step& step) const;
  /// Time that the step spends on a copy, on encoding or decoding, or on moving data through the
  /// window.
  double local(const Step& step) const;

  /// Time for all ranks of a node to wait for each other.
  double meeting() const;
  /// Time that one piece through the window takes in addition to the time of its bytes.
  double piece() const;
  /// Fixed time of a call in which no rank waits for all others, in addition to the time of its
  /// pieces.
  double flow() const;
  /// Number of bytes that this step copies or adds in caches.
  double copied(const Step& step) const;
  /// Time of the copies and additions that `handled` counts, including their memory traffic.
  double handling(const Handled& handled) const;
  /// Sets the rate of steps through the window. `copied`: bytes that all steps of the rank copy or
  /// add.
  void set_window_rate(double copied);
  /// Returns the size and the memory traffic of a rank's buffers, with `copied` 0.
  Handled buffers(int rank) const;

 private:
  double total_bytes() const;

  const Problem& problem_;
  const std::size_t element_bytes_;
  const Facts& facts_;
  const double scale_;
  std::size_t neighbours_ = 0;  ///< Number of other ranks on the largest node.
  double latency_ = 0;
  double work_ = 0;  ///< Time for which a message occupies the rank itself.
  double byte_ = 0;  ///< Time of one byte on a link.
  double window_byte_ = 0;
};

struct Walked {
  double seconds = 0;  ///< Time until the last step has ended.
  /// Time for which the busiest resource is busy: a direction of a link or cable, or a rank's
  /// processor. Each repetition of the same steps adds `busiest` to the total time.
  double busiest = 0;
  bool complete = false;  ///< True if all steps have ended.
};

/// Simulates the schedules of all ranks, given in rank order. A single schedule in a larger group
/// stands for all ranks, which do the same at the same time. Its n-th receive then takes the
/// message of its own n-th send, and the other ranks of the node arrive at the same times as this
/// rank.
///
/// A step begins as soon as the steps that it waits for have ended and its resource is free. If
/// several steps wait for a resource, the one that waited longest is first. The sends of a rank
/// share one resource. Its receives and the arithmetic on received data share another one, and all
/// its other steps a third one. If `cables` is not null, messages also occupy the cables on their
/// way.
Walked walk(std::span<const Schedule> schedules, const Problem& problem, const StepTimes& times,
            const CableMap* cables);

}  // namespace mccl::schedule
