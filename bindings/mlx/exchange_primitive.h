// Exchanges as operations of MLX's graphs.
#pragma once

#include <mlx/distributed/distributed.h>
#include <mlx/utils.h>

#include "exchange.h"
#include "group.h"

namespace mccl_mlx {

/// Returns the MCCL group behind an MLX group; null for a group of one process. Throws
/// InvalidArgument if one of MLX's own backends made the group.
std::shared_ptr<Group> group_in(const mx::distributed::Group& group);

/// Records an exchange over a group of several ranks; it runs when the result is evaluated. Throws
/// InvalidArgument if the shape of `x` does not fit.
mx::array record(const mx::array& x, const Exchange& exchange, const std::shared_ptr<Group>& group,
                 mx::StreamOrDevice stream);

}  // namespace mccl_mlx
