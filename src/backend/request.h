// What was asked of a group, checked: who gives how much of what to whom.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/shares.h"
#include "base/conveyor.h"
#include "mccl/buffer.h"
#include "mccl/types.h"

namespace mccl {

/// Speaks of the caller's memory, also for the counts: whoever keeps it longer than the call that
/// asks copies those.
struct Request {
  Collective collective = Collective::barrier;
  DType dtype = DType::u8;
  ReduceOp op;
  int root = -1;
  int peer = -1;
  std::uint32_t tag = 0;
  /// In elements, what all ranks must agree on: of gathers and scatters, all parts together; of a
  /// message, its length; of an all_to_all with counts, nothing.
  std::size_t count = 0;
  ConstBuffer in;
  Buffer out;
  /// The input is the output, or its own slot of it, or the output its own slot of the input.
  bool in_place = false;
  /// The data are in parts, one of each rank: of `part` elements where they are equal, and else of
  /// as many as `counts` has.
  bool in_parts = false;
  std::size_t part = 0;
  std::span<const std::size_t> counts = {};
  /// Of an all_to_all with counts, which are this rank's own: what it gets of each rank.
  std::span<const std::size_t> out_counts = {};
  bool own_counts = false;
  /// Of memory that fills, and is fetched, while the call runs; null where all of it is there.
  Conveyor* conveyor = nullptr;

  void tell(const Shares& shares) {
    in_parts = true;
    counts = shares.counts();
    if (counts.empty()) part = shares.at(0);
  }
};

constexpr bool is_collective(Collective call) {
  return call != Collective::send && call != Collective::recv;
}

constexpr bool reduces(Collective call) {
  return call == Collective::all_reduce || call == Collective::reduce ||
         call == Collective::reduce_scatter;
}

}  // namespace mccl
