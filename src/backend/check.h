// Checks of a call's arguments. Each function throws InvalidArgument if its check fails. The
// message contains the call, the argument, the expected and the actual value.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "backend/shares.h"
#include "engine/calls/call.h"
#include "mccl/buffer.h"
#include "mccl/compression.h"
#include "mccl/types.h"

namespace mccl {

/// Memory must lie on the host or on an available device, must not be null unless it is empty, and
/// must fit the address space.
void check_memory(Collective call, const char* argument, const ConstBuffer& buffer);
void check_same_type(Collective call, const ConstBuffer& in, const ConstBuffer& out);
void check_count(Collective call, const char* argument, std::size_t found, std::size_t expected);
/// There must be one count per rank.
void check_counts(Collective call, std::span<const std::size_t> counts, int size);
/// The shares of all ranks together must fit the address space, so that their sums do not overflow.
/// `argument` is the name of the argument that the shares come from.
void check_shares(Collective call, const char* argument, const Shares& shares, DType dtype);
void check_reduction(Collective call, DType dtype, const ReduceOp& op);
void check_root(Collective call, int root, int size);
void check_peer(Collective call, int peer, int rank, int size, bool any_allowed);

/// check_codec() checks the compression of a call, check_ratio() that of a group. Both accept a
/// compression without a codec.
void check_codec(const engine::Call& call, const Compression& compression);
void check_ratio(const Compression& compression);
/// left_out must have the type and count of the input, and must not overlap input or output.
void check_left_out(Collective call, const ConstBuffer& in, const ConstBuffer& out,
                    const ConstBuffer& left);
/// Throws if a codec is requested. Used where calls cannot be compressed.
void refuse_codec(const std::optional<Compression>& compression);

/// Returns true if a call is in place: element `in_offset` of `in` is element `out_offset` of
/// `out`. Throws if the two overlap in any other way.
bool check_overlap(Collective call, const ConstBuffer& in, const ConstBuffer& out,
                   std::size_t in_offset, std::size_t out_offset);

}  // namespace mccl
