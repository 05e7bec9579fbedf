// Inverts the cost model of a node's shared-memory window: computes the parameters
// (schedule::Facts) with which the model predicts the measured times.
#pragma once

#include <cstddef>

#include "schedule/choose.h"

namespace mccl::native {

/// Each predicted time of a call is a linear function of each fitted time. If ranks share cores,
/// the cost of context switches hides the window's latency, so only switch_s and turn_s are fitted,
/// and the latency keeps its assumed value. If every rank has its own core, there are no context
/// switches to measure. Each function returns 0 if the settings forced the measured calls to use
/// links, because their times then do not depend on the window.
class WindowFit {
 public:
  /// `at_calls` are the facts with which the measured calls chose their algorithms. The calls are
  /// in-place all_reduces and broadcasts of f32; the small ones have `small_bytes` bytes.
  WindowFit(const schedule::Facts& at_calls, int ranks, double ranks_per_core,
            std::size_t small_bytes);

  /// Returns the value of `fact` with which the model predicts `seconds` for a small call of
  /// `collective`. If every rank has a core of its own, `fact` is window_latency_s, and the call is
  /// an all_reduce. Otherwise it is switch_s for an all_reduce, and turn_s for a broadcast.
  double solve(double schedule::Facts::*fact, Collective collective, double seconds) const;
  /// Returns Facts::cached_bytes_per_s, the rate of data in cache. `longer` is the difference in
  /// seconds between an all_reduce of `bytes` bytes and a small one.
  double cached_bytes_per_s(std::size_t bytes, double longer) const;

 private:
  double predicted(Collective collective, std::size_t bytes, const schedule::Facts& facts) const;

  const schedule::Facts at_calls_;
  schedule::Facts facts_;
  const int ranks_;
  const std::size_t small_bytes_;
};

}  // namespace mccl::native
