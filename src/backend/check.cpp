#include "backend/check.h"

#include <fmt/format.h>

#include <cstdint>
#include <limits>

#include "base/coding.h"
#include "device/registry.h"
#include "mccl/error.h"

namespace mccl {

namespace {

void check_device(Collective call, const char* argument, Device device) {
  try {
    device::depot_of(device);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(
        fmt::format("{}: {} cannot be used: {}", name_of(call), argument, error.what()));
  }
}

}  // namespace

void check_memory(Collective call, const char* argument, const ConstBuffer& buffer) {
  if (buffer.device.kind != DeviceKind::cpu) check_device(call, argument, buffer.device);
  if (!buffer.data && buffer.count > 0) {
    throw InvalidArgument(
        fmt::format("{}: {} is null but has {} elements", name_of(call), argument, buffer.count));
  }
  if (buffer.count > std::numeric_limits<std::ptrdiff_t>::max() / size_of(buffer.dtype)) {
    throw InvalidArgument(fmt::format("{}: {} of {} {} elements exceeds the address space",
                                      name_of(call), argument, buffer.count,
                                      name_of(buffer.dtype)));
  }
}

void check_same_type(Collective call, const ConstBuffer& in, const ConstBuffer& out) {
  if (in.dtype == out.dtype) return;
  throw InvalidArgument(fmt::format("{}: input is {} but output is {}; they must be the same type",
                                    name_of(call), name_of(in.dtype), name_of(out.dtype)));
}

void check_count(Collective call, const char* argument, std::size_t found, std::size_t expected) {
  if (found == expected) return;
  throw InvalidArgument(
      fmt::format("{}: {} has {} elements; expected {}", name_of(call), argument, found, expected));
}

void check_counts(Collective call, std::span<const std::size_t> counts, int size) {
  if (counts.size() != static_cast<std::size_t>(size)) {
    throw InvalidArgument(
        fmt::format("{}: found {} counts for {} ranks", name_of(call), counts.size(), size));
  }
}

void check_shares(Collective call, const char* argument, const Shares& shares, DType dtype) {
  if (shares.fit(size_of(dtype))) return;
  if (shares.counts().empty()) {
    throw InvalidArgument(
        fmt::format("{}: {} of {} {} elements on each of {} ranks exceeds the address space",
                    name_of(call), argument, shares.at(0), name_of(dtype), shares.ranks()));
  }
  throw InvalidArgument(
      fmt::format("{}: the sum of {} ({}), in elements of type {}, exceeds the address space",
                  name_of(call), argument, fmt::join(shares.counts(), ", "), name_of(dtype)));
}

void check_reduction(Collective call, DType dtype, const ReduceOp& op) {
  if (static_cast<int>(op.kind) < kReduceKindCount && supports(dtype, op.kind)) return;
  throw InvalidArgument(fmt::format("{}: {} is not defined for {}", name_of(call),
                                    static_cast<int>(op.kind) < kReduceKindCount
                                        ? name_of(op.kind)
                                        : std::string_view("the operation"),
                                    name_of(dtype)));
}

void check_root(Collective call, int root, int size) {
  if (root >= 0 && root < size) return;
  throw InvalidArgument(fmt::format("{}: root {} is not a rank of this group (0 to {})",
                                    name_of(call), root, size - 1));
}

void check_peer(Collective call, int peer, int rank, int size, bool any_allowed) {
  if (any_allowed && peer == -1) return;
  if (peer == rank) {
    throw InvalidArgument(
        fmt::format("{}: rank {} cannot exchange messages with itself", name_of(call), rank));
  }
  if (peer < 0 || peer >= size) {
    throw InvalidArgument(
        fmt::format("{}: rank {} is not in this group (0 to {})", name_of(call), peer, size - 1));
  }
}

void check_codec(const engine::Call& call, const Compression& compression) {
  check_ratio(compression);
  if (compression.codec == Codec::none) return;
  if (may_be_coded(call.collective, call.dtype, call.kind)) return;
  throw InvalidArgument(fmt::format(
      "{} of {} {}: {} applies only to sums and averages of floats by all_reduce and "
      "reduce_scatter; make this call without it",
      name_of(call.collective), name_of(call.kind), name_of(call.dtype), describe(compression)));
}

void check_ratio(const Compression& compression) {
  if (compression.codec != Codec::topk || (compression.ratio > 0 && compression.ratio <= 1)) return;
  throw InvalidArgument(
      fmt::format("the ratio of topk must be above 0 and at most 1; found {}", compression.ratio));
}

void check_left_out(Collective call, const ConstBuffer& in, const ConstBuffer& out,
                    const ConstBuffer& left) {
  check_memory(call, "left_out", left);
  check_same_type(call, in, left);
  check_count(call, "left_out", left.count, in.count);
  const auto apart = [&](const ConstBuffer& other) {
    const auto a = reinterpret_cast<std::uintptr_t>(left.data);
    const auto b = reinterpret_cast<std::uintptr_t>(other.data);
    return a + left.bytes() <= b || b + other.bytes() <= a;
  };
  if (left.count == 0 || (apart(in) && (out.count == 0 || apart(out)))) return;
  throw InvalidArgument(fmt::format(
      "{}: left_out overlaps the input or the output; give it separate memory", name_of(call)));
}

void refuse_codec(const std::optional<Compression>& compression) {
  if (!compression || compression->codec == Codec::none) return;
  throw InvalidArgument(fmt::format(
      "{}: MPI supports no codec; leave the codec out, or choose another backend (MCCL_BACKEND)",
      describe(*compression)));
}

bool check_overlap(Collective call, const ConstBuffer& in, const ConstBuffer& out,
                   std::size_t in_offset, std::size_t out_offset) {
  if (in.count == 0 || out.count == 0) return false;
  const auto in_begin = reinterpret_cast<std::uintptr_t>(in.data);
  const auto out_begin = reinterpret_cast<std::uintptr_t>(out.data);
  const std::size_t element_bytes = size_of(in.dtype);
  if (in_begin + in_offset * element_bytes == out_begin + out_offset * element_bytes) return true;
  if (in_begin + in.bytes() <= out_begin || out_begin + out.bytes() <= in_begin) return false;
  throw InvalidArgument(fmt::format(
      "{}: input and output overlap; use separate memory, or the in-place form of the call",
      name_of(call)));
}

}  // namespace mccl
