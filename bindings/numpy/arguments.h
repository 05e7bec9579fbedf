// Checked conversions of the arguments that Python passes beside arrays. Errors are InvalidArgument
// with a text that begins with `call`.
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

/// A reduction from its name, such as "sum", or from ("premul_sum", factor).
ReduceOp reduce_op(const char* call, nb::handle op);

/// A compression from a codec's name or from ("topk", ratio); absent for None.
std::optional<Compression> compression_of(const char* call, nb::handle compression);

/// A timeout from seconds above 0. Absent for None; zero, which means no limit, for infinity and
/// for more than a year. Raises TypeError if it is not a number.
Timeout timeout_of(const char* call, nb::handle seconds);

/// A tag from 0 to 2^32 - 1.
std::uint32_t tag_of(const char* call, std::int64_t tag);

/// One number of rows per rank, each at least 0. `argument` names it in errors.
std::vector<std::size_t> counts_of(const char* call, const char* argument, nb::handle counts,
                                   int size);

std::size_t sum(const std::vector<std::size_t>& counts);

/// Each count multiplied by `factor`.
std::vector<std::size_t> times(std::vector<std::size_t> counts, std::size_t factor);

}  // namespace mccl::numpy
