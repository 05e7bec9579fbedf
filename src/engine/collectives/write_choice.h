// Chooses how a rank writes data that its neighbours read next: through its cache, or past it.
//
// A line that a neighbour has read stays in the neighbour's cache. To write it again, a core must
// first take it away from there. How long that takes depends on the distance between the cores,
// while memory is equally far from all of them. Measured on an EPYC 9004, GB/s of writing and then
// of reading 256 KiB:
//
//                                 through the cache    past it
//   hardware threads of one core      42 / 45          26 / 15
//   cores that share a cache           9 / 41          29 / 17
//   cores that share none              2 / 17          28 / 18
//
// A virtual machine's cores may move while it runs, so the choice is measured again periodically.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace mccl::engine {

/// Used under the engine's progress lock.
class WriteChoice {
 public:
  enum class Way : std::uint8_t { through_cache, past_cache };

  /// Shorter writes take less time than reading the clock, and always go through the cache.
  static constexpr std::size_t kLeastBytes = 4096;
  /// Writes of a trial, half of them each way. At least as many as one call may make, since places
  /// differ in which neighbour read them last.
  static constexpr int kTrialWrites = 32;
  static_assert(std::has_single_bit(unsigned{kTrialWrites}), "or the halves are not equal");
  /// Slowest writes of either half that are ignored, because something else may have delayed them.
  static constexpr std::size_t kOutliers = 3;
  static constexpr std::chrono::milliseconds kBetweenTrials{50};
  /// The next trial starts early after kSlowWrites writes in a row that took more than kSlow times
  /// as long as in the last trial.
  static constexpr int kSlowWrites = 4;
  static constexpr double kSlow = 2;
  static constexpr std::chrono::milliseconds kLeastBetweenTrials{5};
  /// Data written past the cache is read from memory, which takes longer. So writing past the cache
  /// must be at least this many times as fast to be chosen.
  static constexpr double kWorthwhile = 2.5;

  /// The first trial starts after `fresh_bytes`, which is once around the window. Places that no
  /// neighbour has read yet are fast to write, which is not typical.
  explicit WriteChoice(std::size_t fresh_bytes) : fresh_left_(fresh_bytes) {}

  /// Chooses for a write that begins at `now`.
  Way next(Clock::time_point now);
  /// Reports how long that write took.
  void took(Way way, std::size_t bytes, double seconds, Clock::time_point now);

 private:
  /// Seconds per byte of a trial's writes that went one way.
  struct Samples {
    std::array<double, kTrialWrites / 2> taken{};
    std::size_t count = 0;

    void add(double sample) { taken[count++] = sample; }
    /// Mean without the outliers.
    double mean();
  };
  Samples& samples(Way way) { return samples_[static_cast<std::size_t>(way)]; }

  void decide(Clock::time_point now);
  void watch(double sample);

  Way way_ = Way::through_cache;
  int trials_left_ = 0;
  Clock::time_point next_trial_{};
  Clock::time_point least_next_trial_{};
  double usual_ = 0;  // seconds per byte of the current way
  int slow_writes_ = 0;
  std::size_t fresh_left_;
  std::array<Samples, 2> samples_;  // writes of the trial in progress
};

}  // namespace mccl::engine
