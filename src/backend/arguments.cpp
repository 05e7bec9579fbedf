#include "backend/arguments.h"

#include <fmt/format.h>

#include <cstdint>

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

/// Throws InvalidArgument if the memory is on a device that is not available, if it is null
/// although it has elements, or if it exceeds the address space.
void check_memory(Collective call, const char* argument, const ConstBuffer& buffer) {
  if (buffer.device.kind != DeviceKind::cpu) check_device(call, argument, buffer.device);
  if (!buffer.data && buffer.count > 0) {
    throw InvalidArgument(
        fmt::format("{}: {} is null but has {} elements", name_of(call), argument, buffer.count));
  }
  std::ptrdiff_t bytes = 0;
  if (__builtin_mul_overflow(buffer.count, size_of(buffer.dtype), &bytes)) {
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

/// Throws InvalidArgument if the parts of all ranks together exceed the address space, so that
/// later sums of their lengths cannot overflow. `argument` names the argument that states the
/// lengths.
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

Request request_of(Collective collective, DType dtype, std::size_t count) {
  Request request;
  request.call.collective = collective;
  request.call.dtype = dtype;
  request.call.count = count;
  request.in.dtype = request.out.dtype = dtype;
  return request;
}

engine::Call message(Collective direction, const ConstBuffer& data, int peer, std::uint32_t tag) {
  return {
      .collective = direction, .dtype = data.dtype, .count = data.count, .peer = peer, .tag = tag};
}

void set(Request& request, const ReduceOp& op) {
  request.call.kind = op.kind;
  request.factor = op.factor;
}

/// Returns true if a call is in place: element `in_offset` of `in` is element `out_offset` of
/// `out`. Throws if input and output overlap in any other way.
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

}  // namespace

Shares Arguments::shares_from(Collective call, Counts counts) const {
  if (counts.size() != static_cast<std::size_t>(size_)) {
    throw InvalidArgument(
        fmt::format("{}: expected one count for each of {} ranks; found {} counts", name_of(call),
                    size_, counts.size()));
  }
  return Shares::of(counts);
}

void Arguments::check_root(Collective call, int root) const {
  if (root >= 0 && root < size_) return;
  throw InvalidArgument(fmt::format("{}: root {} is not a rank of this group (0 to {})",
                                    name_of(call), root, size_ - 1));
}

void Arguments::check_peer(Collective call, int peer, bool any_allowed) const {
  if (any_allowed && peer == -1) return;
  if (peer == rank_) {
    throw InvalidArgument(
        fmt::format("{}: rank {} cannot exchange messages with itself", name_of(call), rank_));
  }
  if (peer < 0 || peer >= size_) {
    throw InvalidArgument(
        fmt::format("{}: rank {} is not in this group (0 to {})", name_of(call), peer, size_ - 1));
  }
}

Request Arguments::sum(Collective call, ConstBuffer in, Buffer out, const ReduceOp& op,
                       int root) const {
  const bool is_rooted = call == Collective::reduce;
  check_memory(call, "input", in);
  if (is_rooted) check_root(call, root);
  check_reduction(call, in.dtype, op);
  Request request = request_of(call, in.dtype, in.count);
  set(request, op);
  request.call.root = root;
  request.in = in;
  if (is_rooted && root != rank_) return request;
  check_memory(call, "output", out);
  check_same_type(call, in, out);
  check_count(call, "output", out.count, in.count);
  request.in_place = check_overlap(call, in, out, 0, 0);
  request.out = out;
  return request;
}

Request Arguments::broadcast(Buffer data, int root) const {
  check_memory(Collective::broadcast, "data", data);
  check_root(Collective::broadcast, root);
  Request request = request_of(Collective::broadcast, data.dtype, data.count);
  request.call.root = root;
  request.in_place = true;
  request.in = data;
  request.out = data;
  return request;
}

Request Arguments::in_parts(Collective call, ConstBuffer in, Buffer out,
                            std::optional<Counts> counts, int root, const ReduceOp& op) const {
  const bool is_rooted = call == Collective::gather || call == Collective::scatter;
  const bool divides_input = call == Collective::scatter || call == Collective::reduce_scatter;
  const Shares shares = counts ? shares_from(call, *counts)
                               : Shares::equal(size_, divides_input ? out.count : in.count);
  const bool has_input = call != Collective::scatter || root == rank_;
  const bool has_output = call != Collective::gather || root == rank_;
  if (has_input) check_memory(call, "input", in);
  if (has_output) check_memory(call, "output", out);
  if (is_rooted) check_root(call, root);
  if (has_input && has_output) check_same_type(call, in, out);
  const DType dtype = has_input ? in.dtype : out.dtype;
  const char* const part = divides_input ? "output" : "input";
  check_shares(call, shares.counts().empty() ? part : "counts", shares, dtype);
  const std::size_t own = shares.at(rank_);
  const std::size_t whole = shares.total();
  if (has_input) check_count(call, "input", in.count, divides_input ? whole : own);
  if (has_output) check_count(call, "output", out.count, divides_input ? own : whole);
  Request request = request_of(call, dtype, whole);
  request.call.root = root;
  request.counts = shares.counts();
  request.even = request.counts.empty();
  request.call.counts_hash = engine::hash_of(request.counts);
  if (call == Collective::reduce_scatter) {
    check_reduction(call, dtype, op);
    set(request, op);
  }
  if (has_input && has_output) {
    const std::size_t before = shares.before(rank_);
    request.in_place =
        check_overlap(call, in, out, divides_input ? before : 0, divides_input ? 0 : before);
  }
  if (has_input) request.in = in;
  if (has_output) request.out = out;
  return request;
}

Request Arguments::all_to_all(ConstBuffer in, Buffer out) const {
  const auto ranks = static_cast<std::size_t>(size_);
  if (in.count % ranks != 0) {
    throw InvalidArgument(fmt::format(
        "all_to_all: input has {} elements, which is not a multiple of {} ranks; use all_to_allv",
        in.count, ranks));
  }
  const Shares shares = Shares::equal(size_, in.count / ranks);
  check_exchange(in, shares, out, shares);
  Request request = request_of(Collective::all_to_all, in.dtype, in.count);
  request.even = true;
  request.in = in;
  request.out = out;
  return request;
}

Request Arguments::all_to_allv(ConstBuffer in, Counts in_counts, Buffer out,
                               Counts out_counts) const {
  const Shares given = shares_from(Collective::all_to_all, in_counts);
  check_exchange(in, given, out, shares_from(Collective::all_to_all, out_counts));
  Request request = request_of(Collective::all_to_all, in.dtype, 0);
  request.counts = in_counts;
  request.recv_counts = out_counts;
  request.call.counts_hash = engine::kOwnCounts;
  request.in = in;
  request.out = out;
  return request;
}

void Arguments::check_exchange(ConstBuffer in, const Shares& given, Buffer out,
                               const Shares& taken) const {
  constexpr Collective call = Collective::all_to_all;
  check_memory(call, "input", in);
  check_memory(call, "output", out);
  check_same_type(call, in, out);
  check_shares(call, "in_counts", given, in.dtype);
  check_shares(call, "out_counts", taken, out.dtype);
  check_count(call, "input", in.count, given.total());
  check_count(call, "output", out.count, taken.total());
  if (in.data == out.data && in.count > 0 && out.count > 0) {
    throw InvalidArgument(
        "all_to_all: input and output are the same memory, but all_to_all has no in-place form");
  }
  check_overlap(call, in, out, 0, 0);
  check_count(call, "this rank's own part of the output", taken.at(rank_), given.at(rank_));
}

Request Arguments::barrier() const { return request_of(Collective::barrier, DType::u8, 0); }

Request Arguments::send(ConstBuffer data, int peer, std::uint32_t tag) const {
  check_memory(Collective::send, "data", data);
  check_peer(Collective::send, peer, false);
  return {.call = message(Collective::send, data, peer, tag), .in = data};
}

Request Arguments::recv(Buffer data, int peer, std::uint32_t tag) const {
  check_memory(Collective::recv, "data", data);
  check_peer(Collective::recv, peer, true);
  return {.call = message(Collective::recv, data, peer, tag), .out = data};
}

void check_codec(const engine::Call& call, const Compression& compression) {
  check_ratio(compression);
  if (compression.codec == Codec::none) return;
  if (may_be_coded(call.collective, call.dtype, call.kind)) return;
  throw InvalidArgument(fmt::format(
      "{} of {} {}: {} applies only to sums and averages of floats by all_reduce and "
      "reduce_scatter; make this call without compression",
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

}  // namespace mccl
