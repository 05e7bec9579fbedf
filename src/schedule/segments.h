// Memory as segments that each hold one value.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace mccl::schedule {

/// A map from addresses to T. T::advanced(n) is the value n addresses on in the same segment.
template <typename T>
class SegmentMap {
 public:
  struct Run {
    std::size_t count;
    T value;
  };

  explicit SegmentMap(std::size_t size) : segments_{{0, T{}}}, size_(size) {}

  /// Appends the runs of [begin, begin + count).
  void read(std::size_t begin, std::size_t count, std::vector<Run>& runs) const {
    const std::size_t end = begin + count;
    for (std::size_t i = index_of(begin); begin < end; ++i) {
      const std::size_t stop = std::min(end, end_of(i));
      runs.push_back({stop - begin, segments_[i].value.advanced(begin - segments_[i].begin)});
      begin = stop;
    }
  }

  void write(std::size_t begin, std::span<const Run> runs) {
    std::size_t count = 0;
    for (const Run& run : runs) count += run.count;
    if (count == 0) return;
    const std::size_t first = split(begin);
    const std::size_t last = split(begin + count);
    resize_range(first, last, runs.size());
    for (std::size_t i = 0; i < runs.size(); ++i) {
      segments_[first + i] = {begin, runs[i].value};
      begin += runs[i].count;
    }
  }

  /// Calls change(value) for each segment of [begin, begin + count), cut to fit.
  template <typename Change>
  void update(std::size_t begin, std::size_t count, Change change) {
    if (count == 0) return;
    const std::size_t first = split(begin);
    const std::size_t last = split(begin + count);
    for (std::size_t i = first; i < last; ++i) change(segments_[i].value);
  }

 private:
  struct Segment {
    std::size_t begin;
    T value;
  };

  std::size_t end_of(std::size_t i) const {
    return i + 1 < segments_.size() ? segments_[i + 1].begin : size_;
  }

  std::size_t index_of(std::size_t address) const {
    const auto after =
        std::upper_bound(segments_.begin(), segments_.end(), address,
                         [](std::size_t at, const Segment& segment) { return at < segment.begin; });
    return static_cast<std::size_t>(after - segments_.begin()) - 1;
  }

  /// The index of the segment that begins at `address`, after making it so.
  std::size_t split(std::size_t address) {
    if (address >= size_) return segments_.size();
    const std::size_t i = index_of(address);
    const Segment& segment = segments_[i];
    if (segment.begin == address) return i;
    Segment tail{address, segment.value.advanced(address - segment.begin)};
    segments_.insert(segments_.begin() + i + 1, std::move(tail));
    return i + 1;
  }

  void resize_range(std::size_t first, std::size_t last, std::size_t wanted) {
    const std::size_t present = last - first;
    if (present > wanted) {
      segments_.erase(segments_.begin() + first + wanted, segments_.begin() + last);
    } else if (present < wanted) {
      segments_.insert(segments_.begin() + last, wanted - present, Segment{0, T{}});
    }
  }

  std::vector<Segment> segments_;  // ordered; the first begins at 0
  std::size_t size_;
};

}  // namespace mccl::schedule
