// Works through the window in one step: every rank publishes the data that others need and reads
// the data that it needs.
//
// The window is a row of slots, each of which holds one piece. Where all ranks publish, pieces are
// handled in batches of at most half of the slots. A batch is published and then read, while the
// other slots still hold the previous batch. After a rank has seen a peer's first arrival of a
// batch, it knows that the peer has read all earlier batches. The next batch reuses only slots of
// earlier batches. Where data flow from or to a root, a first arrival does not show what the peer
// has read. There, the ranks that read arrive once per piece, and the ranks that publish wait for
// these arrivals before they reuse a slot.
#include <algorithm>

#include "schedule/algorithm_table.h"
#include "schedule/builder.h"

namespace mccl::schedule {
namespace {

class OneShot : public ScheduleWriter {
 public:
  explicit OneShot(const Problem& problem) : ScheduleWriter(problem) {}

  void all_reduce() {
    const Extent all{0, p_.count};
    lay_slots(1, p_.count, kHalves);
    // In place, a result overwrites the input before all peers have read it.
    builder_.allow_reading({.input = !p_.in_place});
    in_batches(
        p_.count, [&](std::size_t i) { builder_.publish(input(piece(all, i)), slot(i)); },
        [&](std::size_t i) {
          builder_.read_fold(input(piece(all, i)), slot(i), output(piece(all, i)), true);
        });
  }

  void reduce_scatter() {
    const Parts parts(p_.counts);
    const Extent own = parts[p_.rank];
    lay_slots(p_.size, parts.largest(), kHalves);
    builder_.allow_reading({.input = true});
    in_batches(
        parts.largest(), [&](std::size_t i) { publish_parts(parts, i); },
        [&](std::size_t i) {
          builder_.read_fold(input(piece(own, i)), slot(i, p_.rank),
                             output(piece({0, own.count}, i)), true);
        });
  }

  /// Requires Problem::even, so that all ranks know all counts.
  void all_to_all() {
    const Parts parts(p_.counts);
    lay_slots(p_.size, parts.largest(), kHalves);
    builder_.allow_reading({.input = true});
    in_batches(
        parts.largest(), [&](std::size_t i) { publish_parts(parts, i); },
        [&](std::size_t i) {
          builder_.copy(input(piece(parts[p_.rank], i)), output(piece(parts[p_.rank], i)));
          for_others([&](int r) {
            builder_.read(r, slot(i, p_.rank), input(piece(parts[p_.rank], i)),
                          output(piece(parts[r], i)));
          });
        });
  }

  void all_gather() {
    const Parts parts(p_.counts);
    const Extent own{0, p_.counts[p_.rank]};
    lay_slots(1, parts.largest(), kHalves);
    builder_.allow_reading({.input = true});
    in_batches(
        parts.largest(), [&](std::size_t i) { builder_.publish(input(piece(own, i)), slot(i)); },
        [&](std::size_t i) { gather_parts(own, parts, i); });
  }

  void broadcast() {
    const Extent all{0, p_.count};
    lay_slots(1, p_.count, kRow);
    builder_.allow_reading({.output = p_.rank == p_.root});
    flow(
        p_.rank == p_.root, p_.count,
        [&](std::size_t i) { builder_.publish(output(piece(all, i)), slot(i)); },
        [&](std::size_t i) {
          builder_.read(p_.root, slot(i), output(piece(all, i)), output(piece(all, i)));
        });
  }

  void scatter() {
    const Parts parts(p_.counts);
    const Extent own{0, p_.counts[p_.rank]};
    lay_slots(p_.size, parts.largest(), kRow);
    builder_.allow_reading({.input = p_.rank == p_.root});
    flow(
        p_.rank == p_.root, parts.largest(),
        [&](std::size_t i) {
          publish_parts(parts, i);
          builder_.copy(input(piece(parts[p_.rank], i)), output(piece(own, i)));
        },
        [&](std::size_t i) {
          builder_.read(p_.root, slot(i, p_.rank), input(piece(parts[p_.rank], i)),
                        output(piece(own, i)));
        });
  }

  void reduce() {
    const Extent all{0, p_.count};
    lay_slots(1, p_.count, kRow);
    allow_root_to_read();
    flow(
        p_.rank != p_.root, p_.count,
        [&](std::size_t i) { builder_.publish(input(piece(all, i)), slot(i)); },
        [&](std::size_t i) {
          builder_.read_fold(input(piece(all, i)), slot(i), output(piece(all, i)), true);
        });
  }

  void gather() {
    const Parts parts(p_.counts);
    const Extent own{0, p_.counts[p_.rank]};
    lay_slots(1, parts.largest(), kRow);
    allow_root_to_read();
    flow(
        p_.rank != p_.root, parts.largest(),
        [&](std::size_t i) { builder_.publish(input(piece(own, i)), slot(i)); },
        [&](std::size_t i) { gather_parts(own, parts, i); });
  }

  void barrier() { builder_.await(kAllPeers, builder_.arrive()); }

 private:
  void allow_root_to_read() {
    const bool is_root = p_.rank == p_.root;
    builder_.allow_reading({.input = !is_root}, is_root ? kAllPeers : p_.root);
  }

  /// Values of `division`, the number of equal groups of slots. With kRow, each slot is reused as
  /// soon as its readers have arrived. With kHalves, a batch uses at most one half of the slots
  /// while the other half still holds the previous batch.
  static constexpr std::size_t kRow = 1;
  static constexpr std::size_t kHalves = 2;

  /// Divides the window into slots, each with one piece for each of `readers` ranks. The pieces of
  /// one slot have at most Problem::chunk elements in total.
  void lay_slots(int readers, std::size_t longest, std::size_t division) {
    const auto width = static_cast<std::size_t>(readers);
    const std::size_t room = p_.window / (division * width);
    piece_ = std::max<std::size_t>(1, std::min({p_.chunk / width, room, longest}));
    pieces_ = std::max<std::size_t>(1, divide_up(longest, piece_));
    slot_ = piece_ * width;
    const std::size_t most = std::min({p_.window / slot_, kOneShotSlots, pieces_ * division});
    slots_ = most / division * division;
    batch_ = std::min(slots_ / division, kOneShotBatch);
    builder_.use_window(std::min(slots_, pieces_) * slot_);
  }

  std::size_t slot(std::size_t index, int reader = 0) const {
    return index % slots_ * slot_ + (slot_ == piece_ ? 0 : reader * piece_);
  }
  Extent piece(Extent whole, std::size_t index) const { return nth(whole, index, piece_); }

  template <typename Visit>
  void for_others(Visit visit) const {
    for (int d = 1; d < p_.size; ++d) visit(wrap(p_.rank + d, p_.size));
  }

  /// Publishes one piece of the part of each other rank.
  void publish_parts(const Parts& parts, std::size_t index) {
    for_others([&](int r) { builder_.publish(input(piece(parts[r], index)), slot(index, r)); });
  }

  /// Gathers one piece of the part of every rank, this rank included.
  void gather_parts(Extent own, const Parts& parts, std::size_t index) {
    builder_.copy(input(piece(own, index)), output(piece(parts[p_.rank], index)));
    for_others([&](int r) {
      const Extent theirs = parts[static_cast<std::size_t>(r)];
      builder_.read(r, slot(index), input(piece({0, theirs.count}, index)),
                    output(piece(theirs, index)));
    });
  }

  template <typename Publish, typename Read>
  void in_batches(std::size_t count, Publish publish, Read read) {
    if (count == 0) return arrive_for_nothing();
    for (std::size_t begin = 0; begin < pieces_; begin += batch_) {
      const std::size_t end = std::min(pieces_, begin + batch_);
      for (std::size_t i = begin; i < end; ++i) {
        publish(i);
        builder_.arrive();
      }
      for (std::size_t i = begin; i < end; ++i) {
        builder_.await(kAllPeers, mark(i));
        read(i);
      }
    }
  }

  /// Moves data between the root and all other ranks. `publishes`: true if this rank publishes
  /// data, false if it reads data.
  template <typename Publish, typename Read>
  void flow(bool publishes, std::size_t count, Publish publish, Read read) {
    if (count == 0) return arrive_for_nothing();
    const int peer = p_.rank == p_.root ? kAllPeers : p_.root;
    for (std::size_t i = 0; i < pieces_; ++i) {
      if (publishes) {
        if (i >= slots_) builder_.await(peer, mark(i - slots_));
        publish(i);
      } else {
        builder_.await(peer, mark(i));
        read(i);
      }
      builder_.arrive();
    }
  }

  /// Makes all ranks arrive and wait for each other even if there is no data. Arrivals carry the
  /// call's fingerprint, so mismatched calls are detected.
  void arrive_for_nothing() { builder_.await(kAllPeers, builder_.arrive()); }

  static std::uint32_t mark(std::size_t index) { return static_cast<std::uint32_t>(index + 1); }

  std::size_t piece_ = 1;  // elements for one reader
  std::size_t pieces_ = 1;
  std::size_t slot_ = 1;  // elements in a slot
  std::size_t slots_ = 1;
  std::size_t batch_ = 1;  // slots in a batch
};

constexpr Writes<OneShot> kOneShotWrites[] = {
    {Collective::all_reduce, &OneShot::all_reduce},
    {Collective::broadcast, &OneShot::broadcast},
    {Collective::reduce, &OneShot::reduce},
    {Collective::all_gather, &OneShot::all_gather},
    {Collective::gather, &OneShot::gather},
    {Collective::scatter, &OneShot::scatter},
    {Collective::reduce_scatter, &OneShot::reduce_scatter},
    {Collective::all_to_all, &OneShot::all_to_all},
    {Collective::barrier, &OneShot::barrier},
};

bool can_one_shot(const Problem& p) {
  return shares_window(p) && (p.collective != Collective::all_to_all || p.even);
}

}  // namespace

const AlgorithmEntry kOneShot{.name = "one_shot",
                              .can = can_one_shot,
                              .build = write<kOneShotWrites>,
                              .is_symmetric = always,
                              .window = WindowUse::all};

}  // namespace mccl::schedule
