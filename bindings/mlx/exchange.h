// What moves between the ranks of a group, as a value: shapes, gradients, and the engine's call.
#pragma once

#include <mlx/array.h>

#include <vector>

#include "arrays.h"
#include "mccl/group.h"

namespace mccl_mlx {

/// Each is linear in its input, so that a tangent goes through the exchange itself and a cotangent
/// through its adjoint, seen over all ranks: gradients are those of the sum of all ranks' losses.
enum class ExchangeKind {
  all_sum,
  all_mean,
  broadcast,    ///< Everyone gets root's array.
  reduce,       ///< Root gets the sum, the others zeros.
  all_gather,   ///< Everyone gets all rows, in rank order.
  sum_scatter,  ///< Each rank gets its rows of the sum.
  gather,       ///< Root gets all rows; each of the others gets `idle_rows` of zeros.
  scatter,      ///< Each rank gets its rows of root's array.
  all_to_all,
};

/// Rows are slices along axis 0. Calls that move rows need an axis; the others take any shape.
struct Exchange {
  ExchangeKind kind = ExchangeKind::all_sum;
  int root = 0;                ///< Of broadcast, reduce, gather, scatter.
  std::vector<int> rows = {};  ///< By rank: what it gives or gets; of all_to_all: what goes to it.
  std::vector<int> from = {};  ///< Of all_to_all, by rank: what comes from it.
  int idle_rows = 0;           ///< Of gather.
};

/// Whether it moves rows.
bool has_rows(ExchangeKind kind);

/// Throws InvalidArgument where the root is no rank, or rows do not fit the ranks or the array.
void check(const Exchange& exchange, const mx::Shape& input, int rank, int size);

/// What this rank gets.
mx::Shape output_shape(const Exchange& exchange, const mx::Shape& input, int rank);

/// What takes a cotangent of the output to one of the input.
Exchange adjoint(const Exchange& exchange, const mx::Shape& input);

/// Whether this rank's output is its input, bit by bit, so that the two may share memory.
bool gives_own_input(const Exchange& exchange, int rank);
/// Whether the output may take the place of the input.
bool works_in_place(const Exchange& exchange);

/// Starts the engine's call. `row` is the number of elements in a row.
mccl::Work start(const Exchange& exchange, mccl::Group& group, mccl::ConstBuffer in,
                 mccl::Buffer out, std::size_t row, const mccl::CallOptions& options);

}  // namespace mccl_mlx
