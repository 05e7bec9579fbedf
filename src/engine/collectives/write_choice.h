// Chooses how a rank writes data that its neighbours read next: through its cache, or past the
// cache with non-temporal stores.
//
// A cache line that a neighbour has read stays in the neighbour's cache, and must be invalidated
// there before it can be written again. The cost of this depends on the distance between the two
// cores. The cost of writing to memory does not. Measured on an EPYC 9004 with 256 KiB, in GB/s:
// writing by the rank / reading by the neighbour.
//
//                                 through the cache    past the cache
//   hardware threads of one core      42 / 45          26 / 15
//   cores that share a cache           9 / 41          29 / 17
//   cores that share none              2 / 17          28 / 18
//
// A hypervisor may move a virtual machine's cores to other physical cores at any time, so the
// choice is measured again periodically.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace mccl::engine {

/// Chooses between writing through the cache and past it, based on the times of trial writes. Used
/// under the engine's progress lock.
class WriteChoice {
 public:
  enum class Way : std::uint8_t { through_cache, past_cache };

  /// Minimum size in bytes of writes that may go past the cache. Shorter writes take less time than
  /// reading the clock, and always go through the cache.
  static constexpr std::size_t kLeastBytes = 4096;
  /// Number of writes in a trial, half of them through the cache and half past it. It is at least
  /// the number of writes that one call may make, so that a trial covers all parts of the window,
  /// which different neighbours may have read last.
  static constexpr int kTrialWrites = 32;
  static_assert(std::has_single_bit(unsigned{kTrialWrites}), "the halves of a trial must be equal");
  /// Number of slowest writes that are ignored in each half of a trial, because something else may
  /// have delayed them.
  static constexpr std::size_t kOutliers = 3;
  static constexpr std::chrono::milliseconds kBetweenTrials{50};
  /// After kSlowWrites writes in a row that each took more than kSlow times the mean of the last
  /// trial, the next trial starts before kBetweenTrials, but not before kLeastBetweenTrials.
  static constexpr int kSlowWrites = 4;
  static constexpr double kSlow = 2;
  static constexpr std::chrono::milliseconds kLeastBetweenTrials{5};
  /// Data is written past the cache if a write through the cache takes more than kWorthwhile times
  /// as long as one past it. The factor is well above 1, because neighbours must read data written
  /// past the cache from memory, which takes longer.
  static constexpr double kWorthwhile = 2.5;

  /// `fresh_bytes` is the size of the window. The first trial starts after that many bytes have
  /// been written. Earlier writes go to memory that no neighbour has read yet, so they are faster
  /// than later writes.
  explicit WriteChoice(std::size_t fresh_bytes) : fresh_left_(fresh_bytes) {}

  /// Returns how to write data at `now`: through the cache or past it.
  Way next(Clock::time_point now);
  /// Reports the duration of a write for which next() had chosen `way`.
  void took(Way way, std::size_t bytes, double seconds, Clock::time_point now);

 private:
  /// Durations, in seconds per byte, of the writes of one trial that used the same Way.
  struct Samples {
    std::array<double, kTrialWrites / 2> taken{};
    std::size_t count = 0;

    void add(double sample) { taken[count++] = sample; }
    /// Mean of all samples except the kOutliers largest.
    double mean();
  };
  Samples& samples(Way way) { return samples_[static_cast<std::size_t>(way)]; }

  void decide(Clock::time_point now);
  void watch(double sample);

  Way way_ = Way::through_cache;
  int trials_left_ = 0;
  Clock::time_point next_trial_{};
  Clock::time_point least_next_trial_{};
  double usual_ = 0;  // mean seconds per byte of writes by `way_` in the last trial
  int slow_writes_ = 0;
  std::size_t fresh_left_;
  std::array<Samples, 2> samples_;  // writes of the trial in progress, indexed by Way
};

}  // namespace mccl::engine
