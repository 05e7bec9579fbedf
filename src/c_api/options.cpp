#include "c_api/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "c_api/boundary.h"
#include "mccl/error.h"

namespace mccl::c_api {
namespace {

// Sizes in bytes of the first versions of the structs in mccl/c.h. Programs that were compiled with
// these versions pass these sizes, so the sizes must remain valid.
constexpr std::size_t kFirstContextOptions = offsetof(mccl_context_options, config) + sizeof(void*);
constexpr std::size_t kFirstCallOptions = offsetof(mccl_call_options, factor) + sizeof(void*);

constexpr std::size_t kFirstGroupOptions =
    offsetof(mccl_group_options, topk_ratio) + sizeof(double);

/// Longest time limit, short enough to be added to a clock's time without overflow.
constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 365);

void refuse_flags(const char* call, std::uint32_t flags, std::uint32_t known) {
  if ((flags & ~known) == 0) return;
  throw InvalidArgument(
      fmt::format("{}: options.flags is {:#x}, but this library (MCCL_C_VERSION {}) supports only "
                  "{:#x}; zero the struct before filling it in",
                  call, flags, MCCL_C_VERSION, known));
}

}  // namespace

void read_struct(const char* call, const void* from, std::size_t first_size, void* into,
                 std::size_t size) {
  std::uint32_t stated = 0;
  std::memcpy(&stated, from, sizeof stated);
  // A larger size is an error: every version of the structs is smaller than 4096 bytes, and an
  // uninitialised `struct_size` is usually larger.
  constexpr std::uint32_t kTooLarge = 4096;
  if (stated < first_size || stated > kTooLarge) {
    throw InvalidArgument(
        fmt::format("{}: options.struct_size is {}; expected the size of the struct ({} in this "
                    "library): zero the struct, then set struct_size",
                    call, stated, size));
  }
  const auto* bytes = static_cast<const unsigned char*>(from);
  for (std::size_t i = size; i < stated; ++i) {
    if (bytes[i] == 0) continue;
    throw InvalidArgument(
        fmt::format("{}: a field of options is set that this library (MCCL_C_VERSION {}) does not "
                    "support; leave it 0 or use a newer library",
                    call, MCCL_C_VERSION));
  }
  std::memset(into, 0, size);
  std::memcpy(into, from, std::min<std::size_t>(stated, size));
}

mccl_context_options read_options(const char* call, const mccl_context_options* options) {
  require(call, "options", options);
  mccl_context_options read;
  read_struct(call, options, kFirstContextOptions, &read, sizeof read);
  refuse_flags(call, read.flags, 0);
  return read;
}

mccl_group_options read_options(const char* call, const mccl_group_options* options) {
  require(call, "options", options);
  mccl_group_options read;
  read_struct(call, options, kFirstGroupOptions, &read, sizeof read);
  refuse_flags(call, read.flags, 0);
  require(call, "options.name", read.name);
  require(call, "options.members", read.members);
  return read;
}

ReadOptions read_options(const char* call, const mccl_call_options* options) {
  if (!options) return {};
  mccl_call_options read;
  read_struct(call, options, kFirstCallOptions, &read, sizeof read);
  refuse_flags(call, read.flags, MCCL_CALLER_WAITS);
  ReadOptions result;
  if (read.timeout_ms != 0) result.call.timeout = limit_of(read.timeout_ms, {});
  result.call.caller_waits = (read.flags & MCCL_CALLER_WAITS) != 0;
  result.call.compression = compression_of(call, read.compression, read.topk_ratio);
  result.factor = read.factor;
  result.left_out = read.left_out;
  return result;
}

CallOptions ReadOptions::of_sum(std::size_t count, DType dtype) const {
  CallOptions options = call;
  if (left_out) options.left_out = {left_out, count, dtype};
  return options;
}

void refuse_factor(const char* call, const ReadOptions& options) {
  if (!options.factor) return;
  throw InvalidArgument(
      fmt::format("{}: options.factor is set, but only MCCL_PREMUL_SUM uses it", call));
}

void refuse_left_out(const char* call, const ReadOptions& options) {
  if (!options.left_out) return;
  throw InvalidArgument(fmt::format(
      "{}: options.left_out is set, but only all_reduce and reduce_scatter use it", call));
}

std::optional<Compression> compression_of(const char* call, const char* name, double topk_ratio) {
  const bool says_ratio = topk_ratio != 0;
  if (!name && !says_ratio) return std::nullopt;
  if (says_ratio && (!name || std::string_view(name) != name_of(Codec::topk))) {
    throw InvalidArgument(fmt::format(
        "{}: options.topk_ratio is {}, but options.compression is {}; a ratio requires \"topk\"",
        call, topk_ratio, name ? fmt::format("\"{}\"", name) : "NULL"));
  }
  try {
    return says_ratio ? compression_named(name, topk_ratio) : compression_named(name);
  } catch (const InvalidArgument& wrong) {
    throw InvalidArgument(fmt::format("{}: options.compression: {}", call, wrong.what()));
  }
}

DType dtype_of(const char* call, mccl_dtype dtype) {
  if (dtype >= 0 && dtype < kDTypeCount) return static_cast<DType>(dtype);
  throw InvalidArgument(fmt::format("{}: dtype is {}, expected one of mccl_dtype (0 to {})", call,
                                    dtype, kDTypeCount - 1));
}

ReduceOp reduction_of(const char* call, mccl_reduce_op op, const double* factor) {
  if (op < 0 || op >= kReduceKindCount) {
    throw InvalidArgument(fmt::format("{}: op is {}, expected one of mccl_reduce_op (0 to {})",
                                      call, op, kReduceKindCount - 1));
  }
  const bool needs_factor = op == MCCL_PREMUL_SUM;
  if (needs_factor && !factor) {
    throw InvalidArgument(fmt::format(
        "{}: MCCL_PREMUL_SUM needs options.factor, the number to multiply this rank's input by",
        call));
  }
  if (!needs_factor && factor) {
    throw InvalidArgument(
        fmt::format("{}: options.factor is set, but op is {}; only MCCL_PREMUL_SUM uses a factor",
                    call, name_of(static_cast<ReduceKind>(op))));
  }
  return {static_cast<ReduceKind>(op), needs_factor ? *factor : 1.0};
}

std::chrono::milliseconds limit_of(std::int64_t timeout_ms, std::chrono::milliseconds by_default) {
  if (timeout_ms == 0) return by_default;
  if (timeout_ms < 0) return std::chrono::milliseconds(0);
  return std::min(std::chrono::milliseconds(timeout_ms), kLongest);
}

Counts counts_of(const char* call, const char* argument, const std::size_t* counts,
                 const Group& group) {
  require(call, argument, counts);
  Counts result{{counts, static_cast<std::size_t>(group.size())}, 0};
  for (const std::size_t count : result.each) {
    if (!__builtin_add_overflow(result.total, count, &result.total)) continue;
    throw InvalidArgument(fmt::format("{}: the sum of {} ({}) exceeds the address space", call,
                                      argument, fmt::join(result.each, ", ")));
  }
  return result;
}

std::size_t total_of(const char* call, std::size_t count, const Group& group) {
  std::size_t total = 0;
  if (!__builtin_mul_overflow(count, static_cast<std::size_t>(group.size()), &total)) return total;
  throw InvalidArgument(fmt::format("{}: {} elements on each of {} ranks exceed the address space",
                                    call, count, group.size()));
}

}  // namespace mccl::c_api
