// Properties of a problem: the layout of its memories, its nodes, and whether it is valid.
#pragma once

#include <cstddef>
#include <vector>

#include "schedule/schedule.h"

namespace mccl::schedule {

/// Maps the memories of a rank's problem (input, output, scratch and blocks) to one range of
/// addresses. Input and output share addresses where they are the same memory, so overlap is a
/// comparison of numbers. All values are in elements.
struct Layout {
  std::size_t input_count = 0;
  std::size_t output_count = 0;
  bool aliased = false;
  std::size_t input_base = 0;
  std::size_t output_base = 0;
  /// Scratch and blocks lie last, because their sizes depend on the schedule.
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

/// True for all_reduce, reduce and reduce_scatter.
bool is_reduction(Collective collective);

std::size_t total(const std::vector<std::size_t>& counts);

/// Throws InvalidArgument if the problem is inconsistent: a rank or root outside the group, a list
/// of the wrong length, a chunk of 0, or unequal counts for the all_to_all part of a rank to
/// itself.
void check(const Problem& problem);

/// The ranks of the node of `rank`, in rank order and including `rank`.
std::vector<int> node_members(const Problem& problem, int rank);

/// The nodes of a group, ordered by their first rank. Each is the list of its ranks.
std::vector<std::vector<int>> all_nodes(const Problem& problem);

/// True if all ranks are on one node and its window is large enough for every algorithm.
bool shares_window(const Problem& problem);

}  // namespace mccl::schedule
