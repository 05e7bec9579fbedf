// The checked arguments of a call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/shares.h"
#include "engine/calls/conveyor.h"
#include "mccl/buffer.h"
#include "mccl/types.h"

namespace mccl {

/// Refers to the caller's memory, including the counts. Code that keeps a request beyond the call
/// must copy the counts.
struct Request {
  Collective collective = Collective::barrier;
  DType dtype = DType::u8;
  ReduceOp op;
  int root = -1;
  int peer = -1;
  std::uint32_t tag = 0;
  /// Number of elements, on which all ranks must agree. For gathers and scatters: that of all parts
  /// together. For messages: the length. Unused by an all_to_all with counts.
  std::size_t count = 0;
  ConstBuffer in;
  Buffer out;
  /// True if input and output are the same memory, or one of them is the rank's own slot of the
  /// other.
  bool in_place = false;
  /// True if the data consist of one part per rank. Parts have `part` elements if they are equal;
  /// otherwise `counts` has their lengths.
  bool in_parts = false;
  std::size_t part = 0;
  std::span<const std::size_t> counts = {};
  /// all_to_all with counts only: elements that this rank receives from each rank. `counts` then
  /// holds this rank's own counts, and `own_counts` is set.
  std::span<const std::size_t> out_counts = {};
  bool own_counts = false;
  /// Set if parts of the input arrive, and parts of the output are fetched, while the call runs.
  /// Null if the whole input is present.
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
