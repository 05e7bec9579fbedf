// The memories that a problem gives a rank, laid on one line of addresses: where input and output
// are the same memory they have the same addresses, so that overlap is a comparison of numbers.
#pragma once

#include <cstddef>
#include <vector>

#include "schedule/schedule.h"

namespace mccl::schedule {

struct Layout {
  std::size_t input_count = 0;
  std::size_t output_count = 0;
  bool aliased = false;
  std::size_t input_base = 0;
  std::size_t output_base = 0;
  /// Scratch and blocks come last; their sizes are the schedule's affair.
  std::size_t scratch_base = 0;
  static constexpr std::size_t kCodedBase = std::size_t{1} << 60;
  static constexpr std::size_t kSumsBase = std::size_t{1} << 61;
  static constexpr std::size_t kEnd = std::size_t{1} << 62;

  std::size_t address(const Region& region) const {
    switch (region.space) {
      case Space::input:
        return input_base + region.offset;
      case Space::output:
        return output_base + region.offset;
      case Space::scratch:
        return scratch_base + region.offset;
      case Space::coded:
        return kCodedBase + region.offset;
      case Space::sums:
        return kSumsBase + region.offset;
    }
    return 0;
  }
};

Layout layout_of(const Problem& problem);

/// Whether the ranks reduce rather than move.
bool is_reduction(Collective collective);

std::size_t total(const std::vector<std::size_t>& counts);

/// Throws InvalidArgument for a problem that makes no sense: a rank or root outside of the group,
/// counts of the wrong number, a chunk of 0.
void check(const Problem& problem);

}  // namespace mccl::schedule
