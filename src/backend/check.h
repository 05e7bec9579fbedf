// What a call's arguments must fulfil. Each function throws InvalidArgument that names the call,
// the argument, what was expected and what was found.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "backend/shares.h"
#include "mccl/buffer.h"
#include "mccl/compression.h"
#include "mccl/types.h"

namespace mccl {

/// Of the host or of a device that is there, not null unless empty, and not too long for this
/// machine.
void check_memory(Collective call, const char* argument, const ConstBuffer& buffer);
void check_same_type(Collective call, const ConstBuffer& in, const ConstBuffer& out);
void check_count(Collective call, const char* argument, std::size_t found, std::size_t expected);
/// One of each rank.
void check_counts(Collective call, std::span<const std::size_t> counts, int size);
/// What all ranks give or get together is not too long for this machine, so that sums of it are
/// what they seem. `argument` is what the caller gave it by.
void check_shares(Collective call, const char* argument, const Shares& shares, DType dtype);
void check_reduction(Collective call, DType dtype, const ReduceOp& op);
void check_root(Collective call, int root, int size);
void check_peer(Collective call, int peer, int rank, int size, bool any_allowed);

/// What one call asks for, or a group's. Whatever asks for none is right.
void check_codec(Collective call, DType dtype, const ReduceOp& op, const Compression& compression);
void check_ratio(const Compression& compression);
/// What rounding leaves out has memory of its own, as much as the input.
void check_left_out(Collective call, const ConstBuffer& in, const ConstBuffer& out,
                    const ConstBuffer& left);
/// For a backend whose sums are exact.
void refuse_codec(const std::optional<Compression>& compression);

/// Whether a call is in place: whether element `in_offset` of `in` is element `out_offset` of
/// `out`. Throws when the two overlap otherwise.
bool check_overlap(Collective call, const ConstBuffer& in, const ConstBuffer& out,
                   std::size_t in_offset, std::size_t out_offset);

}  // namespace mccl
