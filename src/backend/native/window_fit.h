// The cost model of a node's window, turned around: the facts that predict what was measured.
#pragma once

#include <cstddef>

#include "schedule/choose.h"

namespace mccl::native {

/// Predictions grow evenly with each of the times that are fitted. Where ranks take turns on cores,
/// how soon an arrival is seen does not show in the time of a switch, and stays as assumed;
/// elsewhere nobody switches. Each is 0 where the calls, forced through links, do not tell.
class WindowFit {
 public:
  /// `at_calls`: by what the measured calls were chosen. They are all_reduces in place and
  /// broadcasts, of f32; the small ones of so many bytes.
  WindowFit(const schedule::Facts& at_calls, int ranks, double ranks_per_core,
            std::size_t small_bytes);

  /// From the seconds of a small all_reduce, where every rank has a core.
  double window_latency_s(double small) const;
  /// From the seconds of a small all_reduce and of a small broadcast, where ranks share cores.
  double switch_s(double small) const;
  double turn_s(double flow) const;
  /// From the seconds by which an all_reduce of `bytes` takes longer than a small one.
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
