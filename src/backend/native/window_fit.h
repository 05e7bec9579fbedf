// Inverts the cost model of a node's window: computes the facts that predict the measured times.
#pragma once

#include <cstddef>

#include "schedule/choose.h"

namespace mccl::native {

/// Predictions grow linearly with each fitted time. If ranks share cores, the time of a switch
/// hides the latency of an arrival, so the latency keeps its assumed value. Otherwise there are no
/// switches to measure. Each function returns 0 if the measured calls were forced through links and
/// show nothing of the window.
class WindowFit {
 public:
  /// `at_calls`: the facts by which the measured calls were chosen. The calls are all_reduces in
  /// place and broadcasts, of f32; the small ones have `small_bytes` bytes.
  WindowFit(const schedule::Facts& at_calls, int ranks, double ranks_per_core,
            std::size_t small_bytes);

  /// Takes the seconds of a small all_reduce. Used if every rank has a core of its own.
  double window_latency_s(double small) const;
  /// Take the seconds of a small all_reduce and of a small broadcast. Used if ranks share cores.
  double switch_s(double small) const;
  double turn_s(double flow) const;
  /// Takes the seconds by which an all_reduce of `bytes` is slower than a small one.
  double cached_bytes_per_s(std::size_t bytes, double longer) const;

 private:
  double solve(double schedule::Facts::*fact, Collective collective, double seconds) const;
  double predicted(Collective collective, std::size_t bytes, const schedule::Facts& facts) const;

  const schedule::Facts at_calls_;
  schedule::Facts facts_;
  const int ranks_;
  const std::size_t small_bytes_;
};

}  // namespace mccl::native
