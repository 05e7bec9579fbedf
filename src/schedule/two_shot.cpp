// Works through the window in two steps: every rank reduces its part of all operands and publishes
// the result, which the other ranks read.
//
// A piece is published without the rank's own part, so the space of that part is free for the
// result. Each phase (publish operands, reduce them, read results) runs for a batch of pieces
// before the next phase, so that ranks seldom wait. One set of slots is enough. A rank that has
// read a peer's results of a batch knows that the peer has read all operands of the batch. A rank
// publishes the next operands only after it has read the results of all peers.
#include <algorithm>
#include <vector>

#include "schedule/algorithm_table.h"
#include "schedule/builder.h"

namespace mccl::schedule {
namespace {

class TwoShot : public ScheduleWriter {
 public:
  explicit TwoShot(const Problem& problem)
      : ScheduleWriter(problem),
        piece_(piece_for(problem)),
        part_(divided(problem.chunk, {0, piece_}, ranks(problem), 0).count),
        slot_(part_ * ranks(problem)),
        pieces_(divide_up(p_.count, piece_)),
        slots_(std::max<std::size_t>(1, std::min({p_.window / slot_, kTwoShotSlots, pieces_}))) {
    builder_.use_window(slots_ * slot_);
    builder_.allow_reading({.input = true, .output = has_output()});
  }

  void all_reduce() { run(true); }
  void reduce() { run(p_.rank == p_.root); }

 private:
  static constexpr std::size_t kGranule = 64;

  static std::size_t ranks(const Problem& p) { return static_cast<std::size_t>(p.size); }

  /// In a reduce, only the root has an output. The other ranks keep their results in scratch
  /// memory.
  bool all_have_output() const { return p_.collective == Collective::all_reduce; }
  bool has_output() const { return all_have_output() || p_.rank == p_.root; }

  /// Returns a chunk's length if a slot can hold that many elements in equal parts, one per rank.
  /// Otherwise returns the largest length that fits.
  static std::size_t piece_for(const Problem& p) {
    const std::size_t wanted = std::max<std::size_t>(1, std::min(p.chunk, p.count));
    const std::size_t part = divided(p.chunk, {0, wanted}, ranks(p), 0).count;
    if (part * ranks(p) <= p.window) return wanted;
    const std::size_t most = p.window / ranks(p);
    return ranks(p) * (most < kGranule ? most : most / kGranule * kGranule);
  }

  void run(bool takes_results) {
    if (pieces_ == 0) builder_.await(kAllPeers, builder_.arrive());
    for (std::size_t begin = 0; begin < pieces_; begin += slots_) {
      const std::size_t end = std::min(pieces_, begin + slots_);
      std::vector<std::uint32_t> marks;
      for (std::size_t i = begin; i < end; ++i) {
        publish_operands(i);
        marks.push_back(builder_.arrive());
      }
      for (std::size_t i = begin; i < end; ++i) {
        builder_.await(kAllPeers, marks[i - begin]);
        reduce_own_part(i);
        marks.push_back(builder_.arrive());
      }
      for (std::size_t i = begin; i < end; ++i) {
        const std::uint32_t mark = marks[marks.size() - (end - i)];
        if (takes_results) {
          read_results(i, mark);
        } else {
          builder_.await(kAllPeers, mark);
        }
      }
    }
  }

  Extent piece(std::size_t index) const { return nth(Extent{0, p_.count}, index, piece_); }
  Extent part(std::size_t index, int rank) const {
    return divided(p_.chunk, piece(index), ranks(p_), static_cast<std::size_t>(rank));
  }
  /// A rank's part has the same offset in every slot, even if a short piece has shorter parts.
  /// Results therefore overwrite only earlier results, and never operands.
  std::size_t place(std::size_t index, int rank) const {
    return index % slots_ * slot_ + static_cast<std::size_t>(rank) * part_;
  }

  void publish_operands(std::size_t index) {
    for (int d = 1; d < p_.size; ++d) {
      const int peer = wrap(p_.rank + d, p_.size);
      builder_.publish(input(part(index, peer)), place(index, peer));
    }
  }

  void reduce_own_part(std::size_t index) {
    const Extent own = part(index, p_.rank);
    const Region result = has_output() ? output(own) : scratch(scratch_for(own.count));
    builder_.read_fold(input(own), place(index, p_.rank), result, true);
    builder_.publish(result, place(index, p_.rank));
  }

  void read_results(std::size_t index, std::uint32_t mark) {
    for (int d = 1; d < p_.size; ++d) {
      const int peer = wrap(p_.rank + d, p_.size);
      const Extent theirs = part(index, peer);
      builder_.await(peer, mark);
      const Region result = all_have_output() ? output(theirs) : scratch(theirs);
      builder_.read(peer, place(index, peer), result, output(theirs));
    }
  }

  Extent scratch_for(std::size_t count) {
    if (result_.count < count) result_ = builder_.reserve_scratch(count);
    return {result_.offset, count};
  }

  const std::size_t piece_;
  const std::size_t part_;  // largest part of a piece that one rank reduces
  const std::size_t slot_;
  const std::size_t pieces_;
  const std::size_t slots_;
  Extent result_;
};

constexpr Writes<TwoShot> kTwoShotWrites[] = {
    {Collective::all_reduce, &TwoShot::all_reduce},
    {Collective::reduce, &TwoShot::reduce},
};

bool can_two_shot(const Problem& p) { return shares_window(p) && can_write<kTwoShotWrites>(p); }

}  // namespace

const AlgorithmEntry kTwoShot{.name = "two_shot",
                              .can = can_two_shot,
                              .build = write<kTwoShotWrites>,
                              .is_symmetric = always,
                              .window = WindowUse::all};

}  // namespace mccl::schedule
