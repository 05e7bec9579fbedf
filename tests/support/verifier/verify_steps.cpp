// Checks that need the schedule of one rank only.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "schedule/layout.h"
#include "support/verifier/defect.h"
#include "support/verifier/describe.h"
#include "support/verifier/run_map.h"

namespace mccl::schedule {
namespace {

/// The steps that have accessed a run of memory.
struct Accesses {
  std::vector<std::uint32_t> writer;   // at most one
  std::vector<std::uint32_t> readers;  // since the last write
  Accesses advanced(std::size_t) const { return *this; }
};

class StepChecker {
 public:
  StepChecker(const Problem& problem, const Schedule& schedule)
      : p_(problem), s_(schedule), layout_(layout_of(problem)) {}

  void run() {
    check_links();
    for (std::size_t i = 0; i < s_.steps.size(); ++i) check_step(i);
    if (s_.in_order) {
      check_chain();
    } else {
      check_hazards();
    }
  }

 private:
  [[noreturn]] void fail_at(std::size_t step, const std::string& what) const {
    fail(p_, s_, step, what);
  }

  void require(bool condition, std::size_t step, const char* what) const {
    if (!condition) fail_at(step, what);
  }

  [[noreturn]] void fail_links(const char* what) const {
    throw Defect{fmt::format("rank {}: {}", p_.rank, what)};
  }

  /// Checks that waits and successors agree, and that successors are later steps.
  void check_links() {
    const std::size_t steps = s_.steps.size();
    if (s_.waits.size() != steps || s_.successor_begin.size() != steps + 1) {
      fail_links("the lists of waits and successors do not fit the steps");
    }
    if (s_.successor_begin.front() != 0 || s_.successor_begin.back() != s_.successors.size() ||
        !std::is_sorted(s_.successor_begin.begin(), s_.successor_begin.end())) {
      fail_links("the ranges of successors are broken");
    }
    std::vector<std::uint32_t> found(steps + 1, 0);
    for (std::size_t i = 0; i < steps; ++i) {
      for (std::size_t e = s_.successor_begin[i]; e < s_.successor_begin[i + 1]; ++e) {
        require(s_.successors[e] > i && s_.successors[e] < steps, i,
                "a successor is no later step");
        ++found[s_.successors[e] + 1];
      }
    }
    for (std::size_t i = 0; i < steps; ++i) {
      require(s_.waits[i] == found[i + 1], i, "waits for a number of steps that do not release it");
    }
    list_predecessors(std::move(found));
  }

  void list_predecessors(std::vector<std::uint32_t> counts) {
    std::partial_sum(counts.begin(), counts.end(), counts.begin());
    predecessor_begin_ = counts;
    predecessors_.resize(s_.successors.size());
    for (std::uint32_t i = 0; i < s_.steps.size(); ++i) {
      for (std::size_t e = s_.successor_begin[i]; e < s_.successor_begin[i + 1]; ++e) {
        predecessors_[counts[s_.successors[e]]++] = i;
      }
    }
  }

  /// Checks that each step waits for the one before it, which covers every hazard.
  void check_chain() const {
    for (std::size_t i = 1; i < s_.steps.size(); ++i) {
      require(predecessor_begin_[i + 1] - predecessor_begin_[i] == 1 &&
                  predecessors_[predecessor_begin_[i]] == i - 1,
              i, "does not wait for the step before it");
    }
  }

  void check_window_step(std::size_t i) const {
    const Step& step = s_.steps[i];
    const std::vector<int> node = node_members(p_, p_.rank);
    const bool names_peer =
        step.kind == StepKind::read || (step.kind == StepKind::await && step.peer != kAllPeers);
    require(!names_peer ||
                (step.peer != p_.rank && std::count(node.begin(), node.end(), step.peer) == 1),
            i, "the peer is no other rank of the node");
    const std::size_t count = step.kind == StepKind::publish ? step.src.count : step.dst.count;
    require(s_.window_count <= p_.window && step.window <= s_.window_count &&
                count <= s_.window_count - step.window,
            i, "lies outside of the window");
    if (i > last_window_ && last_window_ != kNone) {
      require(
          waits_indirectly(static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(last_window_)),
          i, "does not wait for the window step before it");
    }
  }

  void check_step(std::size_t i) {
    const Step& step = s_.steps[i];
    if (is_window(step.kind)) {
      check_window_step(i);
      last_window_ = i;
    }
    if (is_message(step.kind)) {
      const std::size_t count = step.kind == StepKind::send ? step.src.count : step.dst.count;
      const bool may_be_empty =
          p_.collective == Collective::barrier || p_.collective == Collective::all_to_all;
      require(step.peer >= 0 && step.peer < p_.size && step.peer != p_.rank, i,
              "the peer is no other rank of the group");
      require(count <= std::max(p_.chunk, p_.coding.block()), i,
              "the message is larger than a chunk");
      require(count > 0 || may_be_empty, i, "the message is empty");
    }
    if (reads_memory(step.kind)) check_region(i, step.src);
    if (writes_memory(step.kind)) {
      check_region(i, step.dst);
      check_writable(i, step.dst);
    }
    check_shape(i, step);
    check_blocks(i, step);
    if (step.completes) {
      require(is_reduction(p_.collective), i, "completes a reduction where there is none");
      require(step.kind == StepKind::recv_reduce || step.kind == StepKind::fold ||
                  step.kind == StepKind::read_fold || step.kind == StepKind::fold_coded ||
                  (step.kind == StepKind::copy && p_.size == 1),
              i, "a step of this kind completes nothing");
    }
  }

  void check_region(std::size_t i, const Region& region) const {
    const std::size_t size = room_of(region.space);
    require(!holds_blocks(region.space) || region.offset % p_.coding.block() == 0, i,
            "begins inside of a block");
    if (region.count <= size && region.offset <= size - region.count) return;
    fail_at(i, fmt::format("{} lies outside of its memory of {} elements", describe(region), size));
  }

  std::size_t room_of(Space space) const {
    switch (space) {
      case Space::input:
        return layout_.input_count;
      case Space::output:
        return layout_.output_count;
      case Space::scratch:
        return s_.scratch_count;
      case Space::coded:
        return s_.coded_count;
      case Space::sums:
        return s_.sums_count;
    }
    return 0;
  }

  /// Checks that blocks are only encoded, sent, received, folded and decoded, and that other steps
  /// do not use them as plain elements.
  void check_blocks(std::size_t i, const Step& step) const {
    const bool from = reads_memory(step.kind) && holds_blocks(step.src.space);
    const bool to = writes_memory(step.kind) && holds_blocks(step.dst.space);
    switch (step.kind) {
      case StepKind::send:
        return require(from || !rounds(), i, "sends a sum's elements as they are");
      case StepKind::recv:
        return require(to || !rounds(), i, "receives a sum's elements as they are");
      case StepKind::encode:
        return require(!from && step.dst.space == Space::coded, i, "does not encode");
      case StepKind::decode:
        return require(step.src.space == Space::sums && !to, i, "does not decode a sum");
      case StepKind::fold_coded:
        return require(step.src.space == Space::coded && step.dst.space != Space::coded, i,
                       "does not add up blocks");
      default:
        require(!from && !to, i, "takes blocks for elements");
        return require(!rounds() || is_inside(step.kind), i,
                       "is no step of a sum that travels in blocks");
    }
  }

  bool rounds() const { return p_.coding && p_.size > 1; }
  /// True for steps within a node, which use plain elements.
  static bool is_inside(StepKind kind) { return is_window(kind) || kind == StepKind::copy; }

  void check_writable(std::size_t i, const Region& region) const {
    const std::size_t begin = layout_.address(region);
    const bool in_output = begin >= layout_.output_base &&
                           begin + region.count <= layout_.output_base + layout_.output_count;
    require(region.count == 0 || region.space >= Space::scratch || in_output, i, "writes input");
  }

  void check_shape(std::size_t i, const Step& step) const {
    require(step.kind != StepKind::read || step.src.count == step.dst.count, i,
            "reads another number of elements than it writes");
    if (!reads_memory(step.kind) || !writes_memory(step.kind)) return;
    const bool folds_blocks = step.kind == StepKind::fold_coded;
    const std::size_t operands = step.kind == StepKind::fold || folds_blocks ? step.operands : 1;
    const std::size_t block = p_.coding.block();
    const std::size_t stride =
        folds_blocks ? divide_up(step.dst.count, block) * block : step.dst.count;
    require(operands > 0 && step.src.count == (operands - 1) * stride + step.dst.count, i,
            "source and destination do not fit each other");
    const std::size_t src = layout_.address(step.src);
    const std::size_t dst = layout_.address(step.dst);
    const bool apart = src + step.src.count <= dst || dst + step.dst.count <= src;
    const bool may_be_same = step.kind == StepKind::recv_reduce || step.kind == StepKind::read_fold;
    require(apart || (may_be_same && src == dst), i, "source and destination overlap");
  }

  void check_hazards() {
    RunMap<Accesses> memory(Layout::kEnd);
    marks_.assign(s_.steps.size(), 0);
    for (std::uint32_t i = 0; i < s_.steps.size(); ++i) {
      const Step& step = s_.steps[i];
      for (std::size_t e = predecessor_begin_[i]; e < predecessor_begin_[i + 1]; ++e) {
        marks_[predecessors_[e]] = i;
      }
      if (reads_memory(step.kind)) {
        memory.update(layout_.address(step.src), step.src.count, [&](Accesses& accesses) {
          require_waits(i, accesses.writer, "reads what it writes");
        });
      }
      if (writes_memory(step.kind)) {
        memory.update(layout_.address(step.dst), step.dst.count, [&](Accesses& accesses) {
          // If there are readers, they have waited for the writer already.
          if (accesses.readers.empty()) {
            require_waits(i, accesses.writer, "overwrites what it writes");
          }
          require_waits(i, accesses.readers, "overwrites what it reads");
        });
      }
      if (reads_memory(step.kind)) {
        memory.update(layout_.address(step.src), step.src.count,
                      [&](Accesses& accesses) { accesses.readers.push_back(i); });
      }
      if (writes_memory(step.kind)) {
        memory.update(layout_.address(step.dst), step.dst.count, [&](Accesses& accesses) {
          accesses.writer.assign(1, i);
          accesses.readers.clear();
        });
      }
    }
  }

  void require_waits(std::uint32_t step, const std::vector<std::uint32_t>& earlier,
                     const char* why) const {
    for (const std::uint32_t needed : earlier) {
      const bool directly = marks_[needed] == step;
      if (directly || waits_indirectly(step, needed)) continue;
      fail_at(step, fmt::format("does not wait for step {} ({}), but {}", needed,
                                describe(s_.steps[needed]), why));
    }
  }

  bool waits_indirectly(std::uint32_t step, std::uint32_t needed) const {
    std::vector<std::uint32_t> open{step};
    std::vector<bool> seen(step + 1, false);
    while (!open.empty()) {
      const std::uint32_t at = open.back();
      open.pop_back();
      for (std::size_t e = predecessor_begin_[at]; e < predecessor_begin_[at + 1]; ++e) {
        const std::uint32_t before = predecessors_[e];
        if (before == needed) return true;
        if (before < needed || seen[before]) continue;
        seen[before] = true;
        open.push_back(before);
      }
    }
    return false;
  }

  const Problem& p_;
  const Schedule& s_;
  const Layout layout_;
  std::vector<std::uint32_t> predecessor_begin_;
  std::vector<std::uint32_t> predecessors_;
  static constexpr std::size_t kNone = SIZE_MAX;
  std::size_t last_window_ = kNone;   // the latest window step that was checked
  std::vector<std::uint32_t> marks_;  // marks_[j] == i: step i waits for step j
};

}  // namespace

void fail(const Problem& problem, const Schedule& schedule, std::size_t step,
          const std::string& what) {
  throw Defect{fmt::format("rank {}, step {} ({}): {}", problem.rank, step,
                           describe(schedule.steps[step]), what)};
}

void check_steps(const Problem& problem, const Schedule& schedule) {
  StepChecker(problem, schedule).run();
}

}  // namespace mccl::schedule
