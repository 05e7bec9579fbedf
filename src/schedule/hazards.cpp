#include <algorithm>
#include <cstddef>

#include "schedule/builder.h"

namespace mccl::schedule {
namespace {

constexpr std::uint32_t kNone = UINT32_MAX;

class HazardFinder {
 public:
  HazardFinder(const Layout& layout, std::span<const Step> steps,
               std::vector<std::pair<std::uint32_t, std::uint32_t>>& waits)
      : layout_(layout), steps_(steps), waits_(waits) {
    collect_bounds();
    intervals_.resize(bounds_.size());
  }

  void run() {
    for (std::uint32_t i = 0; i < steps_.size(); ++i) {
      const Step& step = steps_[i];
      const auto read = reads_memory(step.kind) ? find(step.src) : Range{};
      const auto written = writes_memory(step.kind) ? find(step.dst) : Range{};
      for (std::size_t at = read.begin; at < read.end; ++at) wait(intervals_[at].writer, i);
      for (std::size_t at = written.begin; at < written.end; ++at) wait_to_write(at, i);
      for (std::size_t at = read.begin; at < read.end; ++at) note_reader(at, i);
      for (std::size_t at = written.begin; at < written.end; ++at) intervals_[at] = {i, kNone};
    }
  }

 private:
  struct Interval {
    std::uint32_t writer = kNone;
    std::uint32_t readers = kNone;  // Head of a list in `readers_`.
  };
  struct Reader {
    std::uint32_t step;
    std::uint32_t next;
  };
  struct Range {
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  void collect_bounds() {
    bounds_.reserve(4 * steps_.size());
    const auto add = [this](const Region& region) {
      if (region.count == 0) return;
      const std::size_t begin = layout_.address(region);
      bounds_.push_back(begin);
      bounds_.push_back(begin + region.count);
    };
    for (const Step& step : steps_) {
      if (reads_memory(step.kind)) add(step.src);
      if (writes_memory(step.kind)) add(step.dst);
    }
    std::sort(bounds_.begin(), bounds_.end());
    bounds_.erase(std::unique(bounds_.begin(), bounds_.end()), bounds_.end());
  }

  Range find(const Region& region) const {
    if (region.count == 0) return {};
    const std::size_t begin = layout_.address(region);
    const auto first = std::lower_bound(bounds_.begin(), bounds_.end(), begin);
    auto last = first;
    while (*last != begin + region.count) ++last;
    return {static_cast<std::size_t>(first - bounds_.begin()),
            static_cast<std::size_t>(last - bounds_.begin())};
  }

  void wait(std::uint32_t earlier, std::uint32_t later) {
    if (earlier == kNone) return;
    if (!waits_.empty() && waits_.back() == std::pair{earlier, later}) return;
    waits_.emplace_back(earlier, later);
  }

  void wait_to_write(std::size_t at, std::uint32_t step) {
    const Interval& interval = intervals_[at];
    // The readers have already waited for the writer, so waiting for them is enough.
    if (interval.readers == kNone) wait(interval.writer, step);
    for (std::uint32_t r = interval.readers; r != kNone; r = readers_[r].next) {
      wait(readers_[r].step, step);
    }
  }

  void note_reader(std::size_t at, std::uint32_t step) {
    readers_.push_back({step, intervals_[at].readers});
    intervals_[at].readers = static_cast<std::uint32_t>(readers_.size() - 1);
  }

  const Layout& layout_;
  std::span<const Step> steps_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>>& waits_;
  std::vector<std::size_t> bounds_;
  std::vector<Interval> intervals_;  // intervals_[i] is [bounds_[i], bounds_[i + 1])
  std::vector<Reader> readers_;
};

}  // namespace

void find_hazards(const Layout& layout, std::span<const Step> steps,
                  std::vector<std::pair<std::uint32_t, std::uint32_t>>& waits) {
  HazardFinder(layout, steps, waits).run();
}

void link_waits(std::vector<std::pair<std::uint32_t, std::uint32_t>>& waits, Schedule& schedule) {
  std::sort(waits.begin(), waits.end());
  waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
  const std::size_t steps = schedule.steps.size();
  schedule.waits.assign(steps, 0);
  schedule.successor_begin.assign(steps + 1, 0);
  schedule.successors.resize(waits.size());
  for (std::size_t i = 0; i < waits.size(); ++i) {
    const auto [earlier, later] = waits[i];
    ++schedule.waits[later];
    ++schedule.successor_begin[earlier + 1];
    schedule.successors[i] = later;
  }
  for (std::size_t i = 0; i < steps; ++i) {
    schedule.successor_begin[i + 1] += schedule.successor_begin[i];
  }
}

}  // namespace mccl::schedule
