#include "schedule/builder.h"

#include <algorithm>
#include <cstddef>

namespace mccl::schedule {
namespace {

std::size_t data_of(const Problem& p) {
  return std::max({p.count, total(p.counts), total(p.recv_counts), std::size_t{1}});
}

std::size_t longest_of(const std::vector<std::size_t>& counts) {
  return counts.empty() ? 0 : *std::ranges::max_element(counts);
}

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
    std::uint32_t readers = kNone;  // Index of the first reader in `readers_`.
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
    // If steps have read the interval since its last write, they wait for the writer, so it is
    // enough to wait for these readers.
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

ScheduleBuilder::ScheduleBuilder(const Problem& problem)
    : layout_(layout_of(problem)),
      keeps_empty_messages_(problem.collective == Collective::barrier ||
                            problem.collective == Collective::all_to_all),
      block_(problem.coding.block()),
      is_long_(std::max(problem.count, longest_of(problem.counts)) >=
               problem.window / kReadableShare),
      chunk_(std::min(problem.chunk, data_of(problem))) {}

Extent ScheduleBuilder::reserve_scratch(std::size_t count) {
  const Extent extent{schedule_.scratch_count, count};
  schedule_.scratch_count += count;
  return extent;
}

std::uint32_t ScheduleBuilder::append(const Step& step) {
  schedule_.steps.push_back(step);
  return static_cast<std::uint32_t>(schedule_.steps.size() - 1);
}

std::uint32_t ScheduleBuilder::send(int peer, const Region& src) {
  if (src.count == 0 && !keeps_empty_messages_) return 0;
  return append({.kind = StepKind::send, .peer = peer, .src = src, .dst = {}});
}

std::uint32_t ScheduleBuilder::recv(int peer, const Region& dst) {
  if (dst.count == 0 && !keeps_empty_messages_) return 0;
  return append({.kind = StepKind::recv, .peer = peer, .src = {}, .dst = dst});
}

void ScheduleBuilder::recv_reduce(int peer, const Region& src, const Region& dst, bool completes) {
  if (dst.count == 0) return;
  append({.kind = StepKind::recv_reduce,
          .completes = completes,
          .peer = peer,
          .src = src,
          .dst = dst});
}

void ScheduleBuilder::send_pieces(int peer, const Region& src) {
  for (std::size_t c = 0; c < pieces(src.count); ++c) send(peer, piece(src, c));
}

void ScheduleBuilder::recv_pieces(int peer, const Region& dst) {
  for (std::size_t c = 0; c < pieces(dst.count); ++c) recv(peer, piece(dst, c));
}

void ScheduleBuilder::copy(const Region& src, const Region& dst, bool completes) {
  if (dst.count == 0 || layout_.address(src) == layout_.address(dst)) return;
  append({.kind = StepKind::copy, .completes = completes, .src = src, .dst = dst});
}

void ScheduleBuilder::copy_pieces(const Region& src, const Region& dst, bool completes) {
  for (std::size_t c = 0; c < pieces(dst.count); ++c) {
    copy(piece(src, c), piece(dst, c), completes);
  }
}

void ScheduleBuilder::fold(std::size_t src_offset, int operands, const Region& dst,
                           bool completes) {
  if (dst.count == 0) return;
  append({.kind = StepKind::fold,
          .completes = completes,
          .operands = static_cast<std::uint32_t>(operands),
          .src = {Space::scratch, src_offset, static_cast<std::size_t>(operands) * dst.count},
          .dst = dst});
}

std::size_t ScheduleBuilder::reserve_coded(std::size_t count) {
  return std::exchange(schedule_.coded_count, schedule_.coded_count + count);
}

std::size_t ScheduleBuilder::reserve_sums(std::size_t count) {
  return std::exchange(schedule_.sums_count, schedule_.sums_count + count);
}

void ScheduleBuilder::encode(const Region& src, const Region& dst, std::size_t element) {
  if (dst.count == 0) return;
  append({.kind = StepKind::encode, .element = element, .src = src, .dst = dst});
}

void ScheduleBuilder::decode(int maker, const Region& src, const Region& dst) {
  if (dst.count == 0) return;
  append({.kind = StepKind::decode, .peer = maker, .src = src, .dst = dst});
}

void ScheduleBuilder::fold_coded(std::size_t src_offset, int operands, const Region& dst,
                                 std::size_t element) {
  if (dst.count == 0) return;
  const auto ranks = static_cast<std::size_t>(operands);
  const std::size_t stride = divide_up(dst.count, block_) * block_;
  append({.kind = StepKind::fold_coded,
          .completes = true,
          .operands = static_cast<std::uint32_t>(operands),
          .element = element,
          .src = {Space::coded, src_offset, (ranks - 1) * stride + dst.count},
          .dst = dst});
}

void ScheduleBuilder::publish(const Region& src, std::size_t window) {
  if (src.count == 0) return;
  append({.kind = StepKind::publish, .window = window, .src = src, .dst = {}});
}

std::uint32_t ScheduleBuilder::arrive() {
  append({.kind = StepKind::arrive, .src = {}, .dst = {}});
  return ++schedule_.arrivals;
}

void ScheduleBuilder::await(int peer, std::uint32_t mark) {
  append({.kind = StepKind::await, .peer = peer, .mark = mark, .src = {}, .dst = {}});
}

void ScheduleBuilder::read(int peer, std::size_t window, const Region& src, const Region& dst) {
  if (dst.count == 0) return;
  append({.kind = StepKind::read, .peer = peer, .window = window, .src = src, .dst = dst});
}

void ScheduleBuilder::read_fold(const Region& src, std::size_t window, const Region& dst,
                                bool completes) {
  if (dst.count == 0) return;
  append({.kind = StepKind::read_fold,
          .completes = completes,
          .window = window,
          .src = src,
          .dst = dst});
}

void ScheduleBuilder::allow_reading(Readable readable, int readers) {
  if (!is_long_) return;
  readers_ = readers;
  schedule_.readable = readable;
  schedule_.reads_in_place = true;
}

void ScheduleBuilder::after(std::uint32_t earlier, std::uint32_t later) {
  waits_.emplace_back(earlier, later);
}

Schedule ScheduleBuilder::finish() {
  if (schedule_.reads_in_place)
    append({.kind = StepKind::await_readers,
            .peer = readers_,
            .mark = arrive(),
            .src = {},
            .dst = {}});
  const std::vector<Step>& steps = schedule_.steps;
  const auto is_message_step = [](const Step& step) { return is_message(step.kind); };
  schedule_.in_order =
      schedule_.arrivals > 0 && std::none_of(steps.begin(), steps.end(), is_message_step);
  std::uint32_t last = UINT32_MAX;
  for (std::uint32_t i = 0; i < steps.size(); ++i) {
    if (!schedule_.in_order && !is_window(steps[i].kind)) continue;
    if (last != UINT32_MAX) after(last, i);
    last = i;
  }
  if (!schedule_.in_order) find_hazards(layout_, steps, waits_);
  link_waits(waits_, schedule_);
  return std::move(schedule_);
}

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
