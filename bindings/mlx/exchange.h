// Describes one collective operation on MLX arrays as a value (`ArrayExchange`), and adds it to
// MLX's graph.
#pragma once

#include <mlx/array.h>
#include <mlx/distributed/distributed.h>
#include <mlx/utils.h>

#include <memory>
#include <utility>
#include <vector>

#include "group.h"
#include "mccl/group.h"

namespace mccl_mlx {

/// Kinds of exchange. Each is linear in its input. Differentiation therefore applies the exchange
/// itself to a tangent, and its adjoint over all ranks to a cotangent. The resulting gradient is
/// that of the sum of all ranks' losses.
enum class ExchangeKind {
  all_sum,
  all_mean,
  broadcast,    ///< Every rank gets root's array.
  reduce,       ///< Root gets the sum; every other rank gets zeros.
  all_gather,   ///< Every rank gets all rows, in rank order.
  sum_scatter,  ///< Each rank gets its rows of the sum.
  gather,       ///< Root gets all rows; every other rank gets `idle_rows` rows of zeros.
  scatter,      ///< Each rank gets its rows of root's array.
  all_to_all,
};

/// One exchange. Rows are slices along axis 0. Kinds that move rows need arrays with at least one
/// axis; the other kinds take arrays of any shape.
struct ArrayExchange {
  ExchangeKind kind = ExchangeKind::all_sum;
  int root = 0;  ///< Used by broadcast, reduce, gather and scatter.
  /// Number of rows of each rank; for all_to_all, number of rows sent to each rank.
  std::vector<int> rows = {};
  std::vector<int> from = {};  ///< all_to_all only: number of rows received from each rank.
  int idle_rows = 0;           ///< gather only: number of output rows on ranks other than root.
};

/// Throws InvalidArgument if the root is not a rank, or if the rows do not match the number of
/// ranks or the shape of the array.
void check(const ArrayExchange& exchange, const mx::Shape& input, int rank, int size);

/// Returns the MCCL group behind an MLX group; null for a group of one process. Throws
/// InvalidArgument if one of MLX's own backends made the group.
std::shared_ptr<MlxGroup> group_in(const mx::distributed::Group& group);

/// Adds an exchange over a group of several ranks to MLX's graph. The exchange runs when the result
/// is evaluated. Throws InvalidArgument if the shape of `x` does not match `exchange` (see
/// check()).
mx::array record(const mx::array& x, const ArrayExchange& exchange,
                 const std::shared_ptr<MlxGroup>& group, mx::StreamOrDevice stream);

/// Adds an operation with two results to MLX's graph: the mean of all ranks' `x`, which a codec
/// rounds before it is sent, and this rank's rounding error. The group must have several ranks.
/// Evaluating either result computes both results. Neither result has a gradient. Throws
/// InvalidArgument if `x` does not hold floats.
std::pair<mx::array, mx::array> record_rounded_mean(const mx::array& x,
                                                    const mccl::Compression& compression,
                                                    const std::shared_ptr<MlxGroup>& group,
                                                    mx::StreamOrDevice stream);

}  // namespace mccl_mlx
