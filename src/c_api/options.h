// Converts structs and numbers from callers to the types of the C++ interface.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "mccl/c.h"
#include "mccl/compression.h"
#include "mccl/group.h"
#include "mccl/types.h"

namespace mccl::c_api {

/// Copies a caller's struct, whose first word is its size in bytes. The caller may use an older or
/// newer header: fields that the caller's struct lacks become zero. Throws InvalidArgument if a
/// field that this library does not know is not zero, or if the size is above 4096 or below
/// `first_size`, the size of the first version of the struct.
void read_struct(const char* call, const void* from, std::size_t first_size, void* into,
                 std::size_t size);

/// Reads the options of a context. Checks only their size and flags.
mccl_context_options read_options(const char* call, const mccl_context_options* options);

/// Reads the options of a group. Throws InvalidArgument if name or members are null.
mccl_group_options read_options(const char* call, const mccl_group_options* options);

/// The options of one call, converted from mccl_call_options.
struct ReadOptions {
  CallOptions call;
  const double* factor = nullptr;
  void* left_out = nullptr;

  /// Returns `call` for a reduction whose input has `count` elements. Sets CallOptions::left_out to
  /// a buffer of the same count and type at the address `left_out`, if that is not null.
  CallOptions of_sum(std::size_t count, DType dtype) const;
};
ReadOptions read_options(const char* call, const mccl_call_options* options);
/// Throw InvalidArgument if `factor` or `left_out`, respectively, is set. Used for calls that do
/// not support the option.
void refuse_factor(const char* call, const ReadOptions& options);
void refuse_left_out(const char* call, const ReadOptions& options);

/// Parses a compression's name. Returns empty if `name` is null and `topk_ratio` is 0. Throws
/// InvalidArgument if the name is unknown, or if `topk_ratio` is not 0 and the name is not "topk".
std::optional<Compression> compression_of(const char* call, const char* name, double topk_ratio);

DType dtype_of(const char* call, mccl_dtype dtype);
/// Returns the reduction `op`, with its factor if it is premul_sum. Throws InvalidArgument if `op`
/// is unknown, if premul_sum has no factor, or if another reduction has a factor.
ReduceOp reduction_of(const char* call, mccl_reduce_op op, const double* factor);

/// Converts a time limit of the C interface: 0 means `by_default`. A negative number means no
/// limit, for which the C++ interface uses 0. Limits longer than a year become a year.
std::chrono::milliseconds limit_of(std::int64_t timeout_ms, std::chrono::milliseconds by_default);

/// Numbers of elements, one for each rank of the group, and their sum.
struct Counts {
  std::span<const std::size_t> each;
  std::size_t total = 0;

  std::size_t of(int rank) const { return each[static_cast<std::size_t>(rank)]; }
};
/// Returns `counts` with their sum. Throws InvalidArgument if `counts` is null or the sum
/// overflows.
Counts counts_of(const char* call, const char* argument, const std::size_t* counts,
                 const Group& group);

/// Returns `count` times the number of ranks. Throws InvalidArgument if the product overflows.
std::size_t total_of(const char* call, std::size_t count, const Group& group);

}  // namespace mccl::c_api
