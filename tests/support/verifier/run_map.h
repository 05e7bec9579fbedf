// Memory as a sequence of runs: stretches that hold one value each.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace mccl::schedule {

/// A map from addresses to T. T::advanced(n) is the value that is n addresses further in the run.
template <typename T>
class RunMap {
 public:
  struct Run {
    std::size_t count;
    T value;
  };

  explicit RunMap(std::size_t size) : runs_{{0, T{}}}, size_(size) {}

  /// Appends the runs of [begin, begin + count).
  void read(std::size_t begin, std::size_t count, std::vector<Run>& runs) const {
    const std::size_t end = begin + count;
    for (std::size_t i = index_of(begin); begin < end; ++i) {
      const std::size_t stop = std::min(end, end_of(i));
      runs.push_back({stop - begin, runs_[i].value.advanced(begin - runs_[i].begin)});
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
      runs_[first + i] = {begin, runs[i].value};
      begin += runs[i].count;
    }
  }

  /// Calls change(value) for each run of [begin, begin + count), splitting runs at both ends.
  template <typename Change>
  void update(std::size_t begin, std::size_t count, Change change) {
    if (count == 0) return;
    const std::size_t first = split(begin);
    const std::size_t last = split(begin + count);
    for (std::size_t i = first; i < last; ++i) change(runs_[i].value);
  }

 private:
  struct PlacedRun {
    std::size_t begin;
    T value;
  };

  std::size_t end_of(std::size_t i) const {
    return i + 1 < runs_.size() ? runs_[i + 1].begin : size_;
  }

  std::size_t index_of(std::size_t address) const {
    const auto after =
        std::upper_bound(runs_.begin(), runs_.end(), address,
                         [](std::size_t at, const PlacedRun& run) { return at < run.begin; });
    return static_cast<std::size_t>(after - runs_.begin()) - 1;
  }

  /// Returns the index of the run that begins at `address`, splitting a run there if needed.
  std::size_t split(std::size_t address) {
    if (address >= size_) return runs_.size();
    const std::size_t i = index_of(address);
    const PlacedRun& run = runs_[i];
    if (run.begin == address) return i;
    PlacedRun tail{address, run.value.advanced(address - run.begin)};
    runs_.insert(runs_.begin() + i + 1, std::move(tail));
    return i + 1;
  }

  void resize_range(std::size_t first, std::size_t last, std::size_t wanted) {
    const std::size_t present = last - first;
    if (present > wanted) {
      runs_.erase(runs_.begin() + first + wanted, runs_.begin() + last);
    } else if (present < wanted) {
      runs_.insert(runs_.begin() + last, wanted - present, PlacedRun{0, T{}});
    }
  }

  std::vector<PlacedRun> runs_;  // sorted; the first begins at 0
  std::size_t size_;
};

}  // namespace mccl::schedule
