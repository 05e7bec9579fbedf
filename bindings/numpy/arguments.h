// What Python passes beside arrays, checked. All throw InvalidArgument that begins with `call`.
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

/// "sum" and so on, or ("premul_sum", factor).
ReduceOp reduce_op(const char* call, nb::handle op);

/// A codec's name, or ("topk", ratio); None is absent.
std::optional<Compression> compression_of(const char* call, nb::handle compression);

/// Seconds; None is absent, infinity is zero, which means no limit.
Timeout timeout_of(const char* call, nb::handle seconds);

std::uint32_t tag_of(const char* call, std::int64_t tag);

/// A number per rank.
std::vector<std::size_t> counts_of(const char* call, const char* argument, nb::handle counts,
                                   int size);

std::size_t sum(const std::vector<std::size_t>& counts);

/// Each multiplied by `factor`.
std::vector<std::size_t> times(std::vector<std::size_t> counts, std::size_t factor);

}  // namespace mccl::numpy
