// What callers state in structs and numbers, as the C++ interface wants it.
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

/// Copies a struct that starts with its own size, and may be one of an older or newer header: what
/// is missing is zero; what is beyond what this library knows must be. Throws InvalidArgument.
void read_struct(const char* call, const void* from, std::size_t first_size, void* into,
                 std::size_t size);

/// The options of the context, checked as far as their form goes.
mccl_context_options read_options(const char* call, const mccl_context_options* options);

/// The options of a group, with a name and members that are there.
mccl_group_options read_options(const char* call, const mccl_group_options* options);

/// The options of a call, which may be null.
struct Options {
  CallOptions call;
  const double* factor = nullptr;
  void* left_out = nullptr;

  /// Those of a sum of an input of `count` elements.
  CallOptions of_sum(std::size_t count, DType dtype) const;
};
Options read_options(const char* call, const mccl_call_options* options);
/// Throw InvalidArgument where something is set that only some calls take.
void refuse_factor(const char* call, const Options& options);
void refuse_left_out(const char* call, const Options& options);

/// As callers name it; null is nothing said.
std::optional<Compression> compression_of(const char* call, const char* name, double topk_ratio);

DType dtype_of(const char* call, mccl_dtype dtype);
/// With the factor that premul_sum needs, and no other reduction takes.
ReduceOp reduction_of(const char* call, mccl_reduce_op op, const double* factor);

/// A time limit in which 0 stands for `by_default`, and negative numbers for none (0 in C++).
std::chrono::milliseconds limit_of(std::int64_t timeout_ms, std::chrono::milliseconds by_default);

/// A count of each rank of the group.
struct Counts {
  std::span<const std::size_t> each;
  std::size_t total = 0;

  std::size_t of(int rank) const { return each[static_cast<std::size_t>(rank)]; }
};
/// Throws InvalidArgument also where the sum is no number.
Counts counts_of(const char* call, const char* argument, const std::size_t* counts,
                 const Group& group);

/// Of as many parts as the group has ranks. Throws InvalidArgument where that is no number.
std::size_t total_of(const char* call, std::size_t count, const Group& group);

}  // namespace mccl::c_api
