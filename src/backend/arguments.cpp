#include "backend/arguments.h"

#include <fmt/format.h>

#include "backend/check.h"
#include "mccl/error.h"

namespace mccl {
namespace {

Request request_of(Collective collective, DType dtype, std::size_t count) {
  Request request;
  request.call.collective = collective;
  request.call.dtype = dtype;
  request.call.count = count;
  request.in.dtype = request.out.dtype = dtype;
  return request;
}

void set(Request& request, const ReduceOp& op) {
  request.call.kind = op.kind;
  request.factor = op.factor;
}

}  // namespace

Request Arguments::sum(Collective call, ConstBuffer in, Buffer out, const ReduceOp& op,
                       int root) const {
  const bool is_rooted = call == Collective::reduce;
  check_memory(call, "input", in);
  if (is_rooted) check_root(call, root, size_);
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
  check_root(Collective::broadcast, root, size_);
  Request request = request_of(Collective::broadcast, data.dtype, data.count);
  request.call.root = root;
  request.in_place = true;
  request.in = data;
  request.out = data;
  return request;
}

Request Arguments::in_parts(Collective call, ConstBuffer in, Buffer out, const Shares& shares,
                            int root, const ReduceOp& op) const {
  const bool is_rooted = call == Collective::gather || call == Collective::scatter;
  const bool divides_input = call == Collective::scatter || call == Collective::reduce_scatter;
  const bool has_input = call != Collective::scatter || root == rank_;
  const bool has_output = call != Collective::gather || root == rank_;
  if (has_input) check_memory(call, "input", in);
  if (has_output) check_memory(call, "output", out);
  if (is_rooted) check_root(call, root, size_);
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

Request Arguments::all_to_allv(ConstBuffer in, std::span<const std::size_t> in_counts, Buffer out,
                               std::span<const std::size_t> out_counts) const {
  const Shares given = shares_from(Collective::all_to_all, in_counts, size_);
  check_exchange(in, given, out, shares_from(Collective::all_to_all, out_counts, size_));
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
        "all_to_all: input and output are the same memory; it has no in-place form");
  }
  check_overlap(call, in, out, 0, 0);
  check_count(call, "this rank's own part of the output", taken.at(rank_), given.at(rank_));
}

Request Arguments::barrier() const { return request_of(Collective::barrier, DType::u8, 0); }

Request Arguments::send(ConstBuffer data, int peer, std::uint32_t tag) const {
  check_memory(Collective::send, "data", data);
  check_peer(Collective::send, peer, rank_, size_, false);
  Request request = request_of(Collective::send, data.dtype, data.count);
  request.call.peer = peer;
  request.call.tag = tag;
  request.in = data;
  return request;
}

Request Arguments::recv(Buffer data, int peer, std::uint32_t tag) const {
  check_memory(Collective::recv, "data", data);
  check_peer(Collective::recv, peer, rank_, size_, true);
  Request request = request_of(Collective::recv, data.dtype, data.count);
  request.call.peer = peer;
  request.call.tag = tag;
  request.out = data;
  return request;
}

Shares shares_from(Collective call, std::span<const std::size_t> counts, int size) {
  check_counts(call, counts, size);
  return Shares::of(counts);
}

}  // namespace mccl
