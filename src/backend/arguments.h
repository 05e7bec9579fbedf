// Checks the arguments of a call and builds its Request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "backend/request.h"
#include "mccl/buffer.h"
#include "mccl/compression.h"
#include "mccl/types.h"

namespace mccl {

/// Builds the Request of each call that one rank makes in a group. All functions throw
/// InvalidArgument; the message names the call and the argument, and states what was found and what
/// was expected.
class Arguments {
 public:
  using Counts = std::span<const std::size_t>;
  Arguments(int rank, int size) : rank_(rank), size_(size) {}

  /// Builds the Request of an all_reduce, or of a reduce to `root`.
  Request sum(Collective call, ConstBuffer in, Buffer out, const ReduceOp& op, int root = -1) const;
  Request broadcast(Buffer data, int root) const;
  /// Builds the Request of an all_gather, gather, scatter or reduce_scatter, whose input or output
  /// consists of one part per rank. Without `counts`, all parts have the length of the buffer that
  /// holds only this rank's part. Only reduce_scatter reads `op`.
  Request in_parts(Collective call, ConstBuffer in, Buffer out, std::optional<Counts> counts = {},
                   int root = -1, const ReduceOp& op = {}) const;
  Request all_to_all(ConstBuffer in, Buffer out) const;
  /// Builds the Request of an all_to_all whose parts may differ in length.
  Request all_to_allv(ConstBuffer in, Counts in_counts, Buffer out, Counts out_counts) const;
  Request barrier() const;
  Request send(ConstBuffer data, int peer, std::uint32_t tag) const;
  /// `peer` is -1 for a message from any rank.
  Request recv(Buffer data, int peer, std::uint32_t tag) const;

 private:
  Shares shares_from(Collective call, Counts counts) const;
  void check_exchange(ConstBuffer in, const Shares& given, Buffer out, const Shares& taken) const;
  void check_root(Collective call, int root) const;
  void check_peer(Collective call, int peer, bool any_allowed) const;

  int rank_;
  int size_;
};

// The following functions also throw InvalidArgument if their check fails.

/// check_codec() checks the compression of a call, and check_ratio() checks the compression of a
/// group. Both accept Codec::none.
void check_codec(const engine::Call& call, const Compression& compression);
void check_ratio(const Compression& compression);
/// Checks `left`, the call's left_out buffer, which receives the error of compression. It must have
/// the type and count of the input, and must not overlap the input or the output.
void check_left_out(Collective call, const ConstBuffer& in, const ConstBuffer& out,
                    const ConstBuffer& left);
/// Throws if `compression` requests a codec. Used with MPI, which cannot compress calls.
void refuse_codec(const std::optional<Compression>& compression);

}  // namespace mccl
