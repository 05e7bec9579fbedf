// Writes a schedule step by step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "schedule/layout.h"
#include "schedule/schedule.h"

namespace mccl::schedule {

/// Builds the schedule of one rank. The caller appends steps in program order, with one message per
/// step, and then calls finish() once. Transfers, copies and folds of 0 elements are dropped, and
/// so are copies of memory onto itself. Only barrier and all_to_all send empty messages.
class ScheduleBuilder {
 public:
  explicit ScheduleBuilder(const Problem& problem);

  /// The size of a piece in elements: Problem::chunk, or the problem's element count if smaller.
  std::size_t chunk() const { return chunk_; }
  std::size_t pieces(std::size_t count) const { return divide_up(count, chunk_); }
  /// The index-th piece of a transfer; empty past the end.
  Region piece(const Region& whole, std::size_t index) const { return nth(whole, index, chunk_); }

  /// Reserves `count` elements of scratch memory for the whole schedule, for use by this caller
  /// only.
  Extent reserve_scratch(std::size_t count);

  /// Reserve memory for blocks of contributions (reserve_coded) or of sums (reserve_sums). `count`
  /// is in elements and must be a multiple of the block size. Both return the offset of the
  /// reserved memory.
  std::size_t reserve_coded(std::size_t count);
  std::size_t reserve_sums(std::size_t count);

  /// send() and recv() return the index of the step, for use with after().
  std::uint32_t send(int peer, const Region& src);
  std::uint32_t recv(int peer, const Region& dst);
  void recv_reduce(int peer, const Region& src, const Region& dst, bool completes = false);
  /// Append one step per piece.
  void send_pieces(int peer, const Region& src);
  void recv_pieces(int peer, const Region& dst);
  /// Appends one step, even if the copy is longer than chunk().
  void copy(const Region& src, const Region& dst, bool completes = false);
  /// Appends one step per piece.
  void copy_pieces(const Region& src, const Region& dst, bool completes = false);
  /// Folds `operands` adjacent regions of scratch into `dst`. Each region has `dst.count` elements;
  /// the first starts at `src_offset`.
  void fold(std::size_t src_offset, int operands, const Region& dst, bool completes);

  /// Encodes src into dst. `element` is the index of src's first element in the call's input.
  void encode(const Region& src, const Region& dst, std::size_t element);
  /// Decodes src, which the rank `maker` encoded, into dst.
  void decode(int maker, const Region& src, const Region& dst);
  /// Sums the contributions that every rank (or node) encoded, which completes the reduction. The
  /// blocks of the contributions start at offset `src_offset` of the coded memory. `element` is the
  /// index of their first element in the call's input.
  void fold_coded(std::size_t src_offset, int operands, const Region& dst, std::size_t element);

  /// Sets the number of elements of the window that the schedule uses. The functions below append
  /// steps that use the window; their `window` offsets are in elements. The algorithm divides the
  /// window into slots.
  void use_window(std::size_t count) { schedule_.window_count = count; }
  /// Allows peers to read this rank's memory instead of the window, if the problem is large enough
  /// that this saves time (kReadableShare). finish() then appends an arrival and a wait for the
  /// readers: one rank, or all ranks of the node. All ranks of a node must call it, or none.
  void allow_reading(Readable readable, int readers = kAllPeers);
  void publish(const Region& src, std::size_t window);
  /// Appends an arrival. Returns the mark that peers pass to await().
  std::uint32_t arrive();
  void await(int peer, std::uint32_t mark);
  /// `src`: the region of its memory that the peer published.
  void read(int peer, std::size_t window, const Region& src, const Region& dst);
  void read_fold(const Region& src, std::size_t window, const Region& dst, bool completes);

  /// Appends the step unchanged. Returns its index.
  std::uint32_t append(const Step& step);

  /// Makes step `later` wait for step `earlier`. Needed only if the two steps share no data,
  /// because finish() finds all other dependencies.
  void after(std::uint32_t earlier, std::uint32_t later);

  /// Computes the steps that each step waits for, and returns the schedule.
  Schedule finish();

 private:
  const Layout layout_;
  const bool keeps_empty_messages_;
  const std::size_t block_;
  const bool is_long_;       // true if peers may read this rank's memory
  int readers_ = kAllPeers;  // the ranks that may, as the peer of a step
  std::size_t chunk_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> waits_;  // steps (earlier, later)
  Schedule schedule_;
};

/// Base class for writers of schedules. There is one derived class per algorithm, with one function
/// per collective.
class ScheduleWriter {
 public:
  Schedule finish() { return builder_.finish(); }

 protected:
  explicit ScheduleWriter(const Problem& problem) : p_(problem), builder_(problem) {}

  /// The ranks that are `distance` above and below this rank, modulo the size of the group.
  int up(int distance) const { return wrap(p_.rank + distance, p_.size); }
  int down(int distance) const { return wrap(p_.rank - distance, p_.size); }

  const Problem& p_;
  ScheduleBuilder builder_;
};

/// Adds a pair (earlier, later) of steps to `waits` for each hazard (two accesses to the same data,
/// at least one of them a write) that the other pairs do not imply. Divides the memory into
/// intervals, at every begin and end of a region. Each interval records its last writer and the
/// readers since then. Takes time proportional to the number of intervals in all regions together.
void find_hazards(const Layout& layout, std::span<const Step> steps,
                  std::vector<std::pair<std::uint32_t, std::uint32_t>>& waits);

/// Fills in the schedule's waits and successors. Duplicate pairs count once.
void link_waits(std::vector<std::pair<std::uint32_t, std::uint32_t>>& waits, Schedule& schedule);

}  // namespace mccl::schedule
