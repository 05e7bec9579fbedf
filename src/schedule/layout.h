// Divides data into parts and pieces, and describes the properties of a problem: the layout of its
// memories, its nodes, and whether it is valid.
//
// A part is one rank's share. A chunk is the maximum size of a message; a piece is the data of one
// message. A segment is the data that passes through the phases of a pipeline together. Its size is
// bounded so that it stays in cache.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "schedule/schedule.h"

namespace mccl::schedule {

/// Number of pieces of each part in a segment. While one piece crosses the slowest link, the other
/// pieces keep the other links busy. This takes many pieces, because the slowest link may need as
/// long for one piece as another link needs for several.
inline constexpr std::size_t kPiecesPerPhase = 16;

/// Maximum numbers of slots of a window; each slot holds one piece. One-shot schedules have up to
/// 16 slots, and publish a batch of at most 4 pieces before they read any piece of it. Two-shot
/// schedules have up to 8 slots, and publish a piece in each before they read.
inline constexpr std::size_t kOneShotSlots = 16;
inline constexpr std::size_t kOneShotBatch = 4;
inline constexpr std::size_t kTwoShotSlots = 8;

/// Peers may read a rank's memory, instead of the window, if the problem's elements, or those of
/// the largest part, are at least 1 / kReadableShare of the window. Fewer elements are copied
/// faster than the ranks can wait for each other once more.
inline constexpr std::size_t kReadableShare = 64;

/// Maximum number of scratch buffers that successive pieces use in turn.
inline constexpr std::size_t kSlots = 4;

/// A range of one memory, in elements.
struct Extent {
  std::size_t offset = 0;
  std::size_t count = 0;
};

inline Region input(Extent s) { return {Space::input, s.offset, s.count}; }
inline Region output(Extent s) { return {Space::output, s.offset, s.count}; }
inline Region scratch(Extent s) { return {Space::scratch, s.offset, s.count}; }

constexpr std::size_t divide_up(std::size_t a, std::size_t b) { return a / b + (a % b != 0); }

/// `count` rounded down to whole blocks, but at least one block.
constexpr std::size_t whole_blocks(std::size_t count, std::size_t block) {
  return std::max(block, count / block * block);
}

/// The index-th run of `length` elements of an extent. The last run may be shorter; runs past the
/// end are empty.
inline Extent nth(Extent whole, std::size_t index, std::size_t length) {
  const std::size_t begin = std::min(whole.count, index * length);
  return {whole.offset + begin, std::min(length, whole.count - begin)};
}

inline Region nth(Region whole, std::size_t index, std::size_t length) {
  const Extent extent = nth(Extent{whole.offset, whole.count}, index, length);
  return {whole.space, extent.offset, extent.count};
}

/// The index-th of `parts` parts of equal length; the last parts may be shorter or empty. If the
/// chunk is a multiple of 64 elements, large extents are divided at multiples of 64, so that
/// operands stay aligned to cache lines.
inline Extent divided(std::size_t chunk, Extent whole, std::size_t parts, std::size_t index) {
  constexpr std::size_t kGranule = 64;
  std::size_t length = divide_up(whole.count, parts);
  if (chunk % kGranule == 0 && length >= 16 * kGranule)
    length = divide_up(length, kGranule) * kGranule;
  return nth(whole, index, length);
}

/// The ranks' parts, adjacent and in rank order.
class Parts {
 public:
  explicit Parts(const std::vector<std::size_t>& counts) : begins_(counts.size() + 1) {
    for (std::size_t i = 0; i < counts.size(); ++i) begins_[i + 1] = begins_[i] + counts[i];
  }

  Extent operator[](std::size_t rank) const {
    return {begins_[rank], begins_[rank + 1] - begins_[rank]};
  }
  /// The extent of the parts [first, last).
  Extent range(std::size_t first, std::size_t last) const {
    return {begins_[first], begins_[last] - begins_[first]};
  }
  std::size_t total() const { return begins_.back(); }
  std::size_t largest() const {
    std::size_t most = 0;
    for (std::size_t i = 0; i + 1 < begins_.size(); ++i) {
      most = std::max(most, begins_[i + 1] - begins_[i]);
    }
    return most;
  }

 private:
  std::vector<std::size_t> begins_;
};

/// `value` modulo `size`, for values of at least -size.
constexpr int wrap(int value, int size) { return (value + size) % size; }

/// Maps the memories of a rank's problem (input, output, scratch and blocks) to one range of
/// addresses. Input and output share addresses where they are the same memory, so two regions
/// overlap if their addresses do. All values are in elements.
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
/// of the wrong length, a chunk of 0, or an all_to_all in which the rank sends itself a different
/// number of elements than it receives from itself.
void check(const Problem& problem);

/// The ranks of the node of `rank`, in rank order and including `rank`.
std::vector<int> node_members(const Problem& problem, int rank);

/// The nodes of a group, ordered by their first rank. Each is the list of its ranks.
std::vector<std::vector<int>> all_nodes(const Problem& problem);

/// True if all ranks are on one node and its window is large enough for every algorithm.
bool shares_window(const Problem& problem);

}  // namespace mccl::schedule
