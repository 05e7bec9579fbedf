// The free ranges of a memory that is allocated range by range.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <vector>

namespace mccl::node {

/// The free ranges, sorted by offset. Adjacent ranges are merged. Not thread-safe.
class FreeList {
 public:
  FreeList(std::size_t offset, std::size_t bytes) {
    if (bytes > 0) free_.push_back({offset, bytes});
  }

  /// Makes room for the ranges that remain free while `taken` ranges are in use, so that
  /// give_back() cannot fail: at most one free range precedes each, and one follows the last.
  void reserve(std::size_t taken) { free_.reserve(taken + 1); }

  /// Takes `bytes` bytes from the smallest range that is large enough, so that small requests fill
  /// the gaps. Among ranges of the same size, uses the first. Returns the offset; nothing if no
  /// range is large enough.
  std::optional<std::size_t> take(std::size_t bytes) {
    const auto better = [bytes](const FreeRange& one, const FreeRange& other) {
      if (one.bytes < bytes || other.bytes < bytes) return one.bytes >= bytes;
      return one.bytes < other.bytes;
    };
    const auto best = std::min_element(free_.begin(), free_.end(), better);
    if (best == free_.end() || best->bytes < bytes) return std::nullopt;
    const std::size_t offset = best->offset;
    best->offset += bytes;
    best->bytes -= bytes;
    if (best->bytes == 0) free_.erase(best);
    return offset;
  }

  void give_back(std::size_t offset, std::size_t bytes) noexcept {
    auto after = std::lower_bound(
        free_.begin(), free_.end(), offset,
        [](const FreeRange& free, std::size_t wanted) { return free.offset < wanted; });
    if (after != free_.end() && offset + bytes == after->offset) {
      bytes += after->bytes;
      after = free_.erase(after);
    }
    if (after != free_.begin()) {
      FreeRange& before = *std::prev(after);
      if (before.offset + before.bytes == offset) {
        before.bytes += bytes;
        return;
      }
    }
    free_.insert(after, {offset, bytes});
  }

 private:
  struct FreeRange {
    std::size_t offset;
    std::size_t bytes;
  };

  std::vector<FreeRange> free_;
};

}  // namespace mccl::node
