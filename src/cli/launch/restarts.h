// Decides which failed ranks start again while the job runs (`mccl launch --restart failed`).
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <vector>

#include "cli/kit/process.h"
#include "cli/launch/run.h"

namespace mccl::cli::launch {

class Restarts {
 public:
  Restarts(const RunOptions& options, int ranks)
      : most_(options.restarts_failed_only ? options.max_restarts : 0),
        of_rank_(static_cast<std::size_t>(ranks)) {}

  /// True if a rank that has ended so may start again. A rank whose host was lost may not, nor one
  /// whose program could not be started.
  bool allows(int rank, const Exit& exit) const {
    return !exit.good() && !exit.connection_lost && at(rank).count < most_ &&
           std::ranges::find(kNotStarted, exit.status) == kNotStarted.end();
  }
  /// Time before which the rank must not start again, so that a rank that fails at once does not
  /// use up its restarts within moments. The first restart need not wait.
  Clock::time_point due(int rank) const { return at(rank).due; }
  /// Counts a restart that happens now. Returns the number of restarts of the rank.
  int add(int rank) {
    OfRank& one = of_rank_[static_cast<std::size_t>(rank)];
    one.due = Clock::now() + kBetween;
    return ++one.count;
  }

 private:
  struct OfRank {
    int count = 0;
    Clock::time_point due = {};
  };
  const OfRank& at(int rank) const { return of_rank_[static_cast<std::size_t>(rank)]; }

  static constexpr std::chrono::seconds kBetween{1};
  /// Exit statuses of a program that is not executable, or not found.
  static constexpr std::array kNotStarted = {126, 127};

  const int most_;
  std::vector<OfRank> of_rank_;  ///< Indexed by rank.
};

}  // namespace mccl::cli::launch
