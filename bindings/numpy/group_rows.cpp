// Calls that concatenate or divide arrays along the first axis.
#include "python/errors.h"
// The include above must stay first: it makes the error types visible to other libraries (see
// errors.h).
#include <fmt/format.h>

#include <optional>
#include <vector>

#include "numpy/group.h"

namespace mccl::numpy {
namespace {

using Counts = std::vector<std::size_t>;

std::size_t rows_of(const Array& x) {
  return x.shape.empty() ? 1 : static_cast<std::size_t>(x.shape[0]);
}

void check_axis(const char* call, const Array& x) {
  if (x.shape.empty())
    throw InvalidArgument(fmt::format(
        "{}: x is a scalar; expected an array with an axis to divide among ranks", call));
}

void check_rows(const char* call, std::size_t found, std::size_t expected, const char* why) {
  if (found == expected) return;
  throw InvalidArgument(fmt::format("{}: x has {} rows along its first axis; expected {}, {}", call,
                                    found, expected, why));
}

/// Returns the number of rows of `whole` that each rank gets. Throws InvalidArgument if `counts`
/// does not match `whole`.
Counts parts_of(const char* call, nb::handle counts, const Array& whole, int size) {
  check_axis(call, whole);
  const std::size_t rows = rows_of(whole);
  if (!counts.is_none()) {
    Counts given = counts_of(call, "counts", counts, size);
    check_rows(call, rows, sum(given), "the sum of counts");
    return given;
  }
  const auto ranks = static_cast<std::size_t>(size);
  if (rows % ranks != 0) {
    throw InvalidArgument(fmt::format(
        "{}: x has {} rows along its first axis, which is not a multiple of {} ranks; use counts=",
        call, rows, size));
  }
  return Counts(ranks, rows / ranks);
}

/// Returns the number of rows that each rank contributes to a concatenation. `part` is this rank's
/// contribution.
Counts all_parts(const char* call, nb::handle counts, const Array& part, int rank, int size) {
  if (counts.is_none()) return Counts(static_cast<std::size_t>(size), rows_of(part));
  Counts given = counts_of(call, "counts", counts, size);
  check_rows(call, rows_of(part), given[static_cast<std::size_t>(rank)],
             "this rank's entry of counts");
  return given;
}

/// Returns `out`, or a new array if `out` is None. `out` must have `rows` rows, and otherwise the
/// type and shape of `like`.
Array rows_like(const char* call, nb::handle out, const Array& like, std::size_t rows) {
  return result_array(call, out, like.dtype, with_rows(like.shape, rows));
}

}  // namespace

nb::object ArrayGroup::all_gather(nb::handle x, nb::handle out, nb::handle counts, bool wait,
                                  nb::handle timeout) {
  constexpr const char* call = "all_gather";
  const Array in = input_array(call, x);
  const Counts rows = all_parts(call, counts, in, rank(), size());
  const Array to = rows_like(call, out, in, sum(rows));
  return run(call, {wait, timeout_of(call, timeout)}, {in.memory, to.memory, to.object},
             [&](Group& group, const CallOptions& options) {
               return group.all_gatherv(in.buffer(), to.buffer(), times(rows, in.row()), options);
             });
}

nb::object ArrayGroup::gather(nb::handle x, int root, nb::handle out, nb::handle counts, bool wait,
                              nb::handle timeout) {
  constexpr const char* call = "gather";
  check_root(call, root);
  const Array in = input_array(call, x);
  const Counts rows = all_parts(call, counts, in, rank(), size());
  Array to;
  to.object = nb::none();
  if (rank() == root) to = rows_like(call, out, in, sum(rows));
  const Buffer buffer = rank() == root ? to.buffer() : Buffer{nullptr, 0, in.dtype, {}};
  return run(call, {wait, timeout_of(call, timeout)}, {in.memory, to.memory, to.object},
             [&](Group& group, const CallOptions& options) {
               return group.gatherv(in.buffer(), buffer, times(rows, in.row()), root, options);
             });
}

nb::object ArrayGroup::reduce_scatter(nb::handle x, nb::handle op, nb::handle out,
                                      nb::handle counts, bool wait, nb::handle timeout,
                                      nb::handle compression) {
  constexpr const char* call = "reduce_scatter";
  const ReduceOp reduction = reduce_op(call, op);
  const Array in = input_array(call, x);
  const Counts rows = parts_of(call, counts, in, size());
  const Array to = rows_like(call, out, in, rows[static_cast<std::size_t>(rank())]);
  const Manner manner{wait, timeout_of(call, timeout), compression_of(call, compression)};
  return run(call, manner, {in.memory, to.memory, to.object},
             [&](Group& group, const CallOptions& options) {
               return group.reduce_scatterv(in.buffer(), to.buffer(), times(rows, in.row()),
                                            reduction, options);
             });
}

nb::object ArrayGroup::scatter(nb::handle x, int root, nb::handle out, nb::handle counts, bool wait,
                               nb::handle timeout) {
  constexpr const char* call = "scatter";
  check_root(call, root);
  Array in;
  Array to;
  Counts rows;
  if (!x.is_none()) {
    in = input_array(call, x);
    rows = parts_of(call, counts, in, size());
    to = rows_like(call, out, in, rows[static_cast<std::size_t>(rank())]);
  } else if (rank() == root || out.is_none()) {
    throw InvalidArgument(
        fmt::format("scatter: x is None on rank {}; pass the values on the root, rank {}; on the "
                    "other ranks, pass an array of the same shape and dtype, or out=",
                    rank(), root));
  } else {
    to = output_array(call, out);
    rows = all_parts(call, counts, to, rank(), size());
  }
  const std::size_t row = to.row();
  const Buffer from = rank() == root ? in.buffer() : Buffer{nullptr, 0, to.dtype, {}};
  return run(call, {wait, timeout_of(call, timeout)}, {in.memory, to.memory, to.object},
             [&](Group& group, const CallOptions& options) {
               return group.scatterv(from, to.buffer(), times(rows, row), root, options);
             });
}

nb::object ArrayGroup::all_to_all(nb::handle x, nb::handle out, nb::handle in_counts,
                                  nb::handle out_counts, bool wait, nb::handle timeout) {
  constexpr const char* call = "all_to_all";
  if (in_counts.is_none() != out_counts.is_none())
    throw InvalidArgument("all_to_all: pass both in_counts and out_counts, or neither");
  const Array in = input_array(call, x);
  const Counts sent = parts_of(call, in_counts, in, size());
  const bool even = in_counts.is_none();
  const Counts received = even ? sent : counts_of(call, "out_counts", out_counts, size());
  const Array to = rows_like(call, out, in, sum(received));
  return run(call, {wait, timeout_of(call, timeout)}, {in.memory, to.memory, to.object},
             [&](Group& group, const CallOptions& options) {
               if (even) return group.all_to_all(in.buffer(), to.buffer(), options);
               return group.all_to_allv(in.buffer(), times(sent, in.row()), to.buffer(),
                                        times(received, in.row()), options);
             });
}

}  // namespace mccl::numpy
