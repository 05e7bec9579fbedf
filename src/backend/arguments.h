// Checks the arguments of each call and makes its request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/request.h"
#include "mccl/buffer.h"
#include "mccl/types.h"

namespace mccl {

/// The arguments of calls that one rank of a group makes. All functions throw InvalidArgument,
/// which names the call and the argument, what was found and what was expected.
class Arguments {
 public:
  Arguments(int rank, int size) : rank_(rank), size_(size) {}

  /// all_reduce, or a reduce to `root`.
  Request sum(Collective call, ConstBuffer in, Buffer out, const ReduceOp& op, int root = -1) const;
  Request broadcast(Buffer data, int root) const;
  /// A call in which the data of one side consist of one part per rank: all_gather, gather, scatter
  /// or reduce_scatter. `op` is read by reduce_scatter only.
  Request in_parts(Collective call, ConstBuffer in, Buffer out, const Shares& shares, int root = -1,
                   const ReduceOp& op = {}) const;
  Request all_to_all(ConstBuffer in, Buffer out) const;
  /// An all_to_all with counts.
  Request all_to_allv(ConstBuffer in, std::span<const std::size_t> in_counts, Buffer out,
                      std::span<const std::size_t> out_counts) const;
  Request barrier() const;
  Request send(ConstBuffer data, int peer, std::uint32_t tag) const;
  /// `peer` is -1 for a message from any rank.
  Request recv(Buffer data, int peer, std::uint32_t tag) const;

 private:
  void check_exchange(ConstBuffer in, const Shares& given, Buffer out, const Shares& taken) const;

  int rank_;
  int size_;
};

/// Returns the shares that `counts` describe. Throws unless there is one count per rank.
Shares shares_from(Collective call, std::span<const std::size_t> counts, int size);

}  // namespace mccl
