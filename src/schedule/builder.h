// Writes a schedule step by step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "schedule/layout.h"
#include "schedule/parts.h"
#include "schedule/schedule.h"

namespace mccl::schedule {

/// Append steps in program order, one message each, then finish() once. Steps over no elements are
/// dropped, and so are copies of memory onto itself; only barrier and all_to_all send messages of
/// nothing.
class ScheduleBuilder {
 public:
  explicit ScheduleBuilder(const Problem& problem);

  /// Problem::chunk, but no more than there is data.
  std::size_t chunk() const { return chunk_; }
  std::size_t pieces(std::size_t count) const { return divide_up(count, chunk_); }
  /// The index-th piece of a transfer; empty past the end.
  Region piece(const Region& whole, std::size_t index) const { return nth(whole, index, chunk_); }

  /// Scratch memory that belongs to the caller for the whole schedule.
  Extent reserve_scratch(std::size_t count);

  /// The same of blocks, of which the count is a multiple; returns the offset.
  std::size_t reserve_coded(std::size_t count);
  std::size_t reserve_sums(std::size_t count);

  /// The index of the step, for after().
  std::uint32_t send(int peer, const Region& src);
  std::uint32_t recv(int peer, const Region& dst);
  void recv_reduce(int peer, const Region& src, const Region& dst, bool completes = false);
  /// One step; the caller cuts it.
  void copy(const Region& src, const Region& dst, bool completes = false);
  /// As many steps as there are pieces.
  void copy_pieces(const Region& src, const Region& dst, bool completes = false);
  /// `dst.count` elements from each of `operands` regions that begin at `src_offset` of scratch.
  void fold(std::size_t src_offset, int operands, const Region& dst, bool completes);

  /// `element`: of the call's input, the first one in src.
  void encode(const Region& src, const Region& dst, std::size_t element);
  /// `maker`: the rank that has encoded it.
  void decode(int maker, const Region& src, const Region& dst);
  /// The whole reduction, of what every rank (or node) has encoded, from `src_offset` of those
  /// blocks on; of the call's input from `element` on.
  void fold_coded(std::size_t src_offset, int operands, const Region& dst, std::size_t element);

  /// Steps through the window, which is divided in slots that the algorithm counts from 0.
  void use_window(std::size_t count) { schedule_.window_count = count; }
  void publish(const Region& src, std::size_t window);
  /// The mark to wait for.
  std::uint32_t arrive();
  void await(int peer, std::uint32_t mark);
  void read(int peer, std::size_t window, const Region& dst);
  void read_fold(const Region& src, std::size_t window, const Region& dst, bool completes);

  /// Any step, as it is.
  std::uint32_t append(const Step& step);

  /// Makes a step wait for an earlier one with which it shares no data.
  void after(std::uint32_t earlier, std::uint32_t later);

  /// Works out which steps wait for which.
  Schedule finish();

 private:
  const Layout layout_;
  const bool keeps_empty_messages_;
  const std::size_t block_;
  std::size_t chunk_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> waits_;  // (earlier, later)
  Schedule schedule_;
};

}  // namespace mccl::schedule
