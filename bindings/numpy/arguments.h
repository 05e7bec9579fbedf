// Checked conversions of the arguments that Python passes in addition to arrays. For an invalid
// value they throw InvalidArgument with a message that begins with `call`.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "mccl/compression.h"
#include "mccl/types.h"

namespace mccl::numpy {

namespace nb = nanobind;

using Timeout = std::optional<std::chrono::milliseconds>;

/// Converts a name such as "sum", or ("premul_sum", factor), to a reduction.
ReduceOp reduce_op(const char* call, nb::handle op);

/// Converts a codec's name, or ("topk", ratio), to a compression. Returns std::nullopt for None.
std::optional<Compression> compression_of(const char* call, nb::handle compression);

/// Converts seconds above 0 to a timeout. Returns std::nullopt for None. Returns 0, which means no
/// limit, for infinity and for more than a year. Raises TypeError if `seconds` is not a number.
Timeout timeout_of(const char* call, nb::handle seconds);

/// Converts a tag, which must be from 0 to 2^32 - 1.
std::uint32_t tag_of(const char* call, std::int64_t tag);

/// Converts numbers of rows, one per rank, each at least 0. `argument` is the argument's name in
/// messages.
std::vector<std::size_t> counts_of(const char* call, const char* argument, nb::handle counts,
                                   int size);

std::size_t sum(const std::vector<std::size_t>& counts);

/// Returns each count multiplied by `factor`.
std::vector<std::size_t> times(std::vector<std::size_t> counts, std::size_t factor);

}  // namespace mccl::numpy
