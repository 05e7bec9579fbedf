// Counts durations in bins whose bounds grow by a constant factor, so that the relative error of a
// quantile is the same for microseconds and for minutes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace mccl {

/// Takes constant memory, and add() takes constant time. Not thread-safe.
class Histogram {
 public:
  /// Counts a duration `times` times. Negative values and NaN count as 0, and values above 1e9 s as
  /// 1e9 s.
  void add(double seconds, std::uint64_t times = 1);

  /// The smallest duration that at least `share` (0 to 1) of all durations do not exceed, within
  /// 2.3 % for durations from 10 ns to 10,000 s; 0 if there are none.
  double quantile(double share) const;

  std::uint64_t count() const { return count_; }

 private:
  static constexpr double kSmallest = 1e-8;
  static constexpr int kBinsPerDoubling = 16;
  static constexpr std::size_t kBins = 640;  // 40 doublings: up to 1.1e4 s

  static std::size_t bin_of(double seconds);

  std::array<std::uint64_t, kBins> bins_ = {};
  std::uint64_t count_ = 0;
  double least_ = 0;
  double most_ = 0;
};

}  // namespace mccl
