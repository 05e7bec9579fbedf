// How a rank writes what its neighbours read next: through its cache, or past it.
//
// A line that a neighbour has read stays in the neighbour's cache, and to write it again a core
// must first take it away there. How long that takes depends on how far apart the cores are, while
// memory is as far from all of them. Measured on an EPYC 9004, GB/s of writing and then of reading
// 256 KiB:
//
//                                 through the cache    past it
//   hardware threads of one core      42 / 45          26 / 15
//   cores that share a cache           9 / 41          29 / 17
//   cores that share none              2 / 17          28 / 18
//
// A virtual machine's cores are moved about while it runs, so it is tried again now and then.
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

  /// Shorter writes take less time than the clock, and go through the cache.
  static constexpr std::size_t kLeastBytes = 4096;
  /// Writes of a trial: half of them one way, half the other. As many as a call may make, since
  /// places differ in who has read them last.
  static constexpr int kTrialWrites = 32;
  static_assert(std::has_single_bit(unsigned{kTrialWrites}), "or the halves are not equal");
  /// Of either half, so many may have been delayed by something else.
  static constexpr std::size_t kOutliers = 3;
  static constexpr std::chrono::milliseconds kBetweenTrials{50};
  /// Or sooner, when so many writes in a row take so many times as long as in the last trial.
  static constexpr int kSlowWrites = 4;
  static constexpr double kSlow = 2;
  static constexpr std::chrono::milliseconds kLeastBetweenTrials{5};
  /// What is written past the cache is read from memory, which takes longer: writing must be so
  /// many times as fast to make up for it.
  static constexpr double kWorthwhile = 2.5;

  /// The first trial comes after `fresh_bytes`, once around the window: places that nobody has read
  /// yet are fast to write, as they never are again.
  explicit WriteChoice(std::size_t fresh_bytes) : fresh_left_(fresh_bytes) {}

  /// Of a write that begins at `now`.
  Way next(Clock::time_point now);
  /// That write took so long.
  void took(Way way, std::size_t bytes, double seconds, Clock::time_point now);

 private:
  /// Seconds a byte, of the writes of a trial that went one way.
  struct Samples {
    std::array<double, kTrialWrites / 2> taken{};
    std::size_t count = 0;

    void add(double sample) { taken[count++] = sample; }
    /// Without the outliers.
    double mean();
  };
  Samples& samples(Way way) { return samples_[static_cast<std::size_t>(way)]; }

  void decide(Clock::time_point now);
  void watch(double sample);

  Way way_ = Way::through_cache;
  int trials_left_ = 0;
  Clock::time_point next_trial_{};
  Clock::time_point least_next_trial_{};
  double usual_ = 0;  // seconds a byte, of the way that is taken
  int slow_writes_ = 0;
  std::size_t fresh_left_;
  std::array<Samples, 2> samples_;  // of the trial under way
};

}  // namespace mccl::engine
