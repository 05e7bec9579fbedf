// Exchanges in MLX's graphs.
#pragma once

#include <mlx/distributed/distributed.h>
#include <mlx/utils.h>

#include "exchange.h"
#include "group.h"

namespace mccl_mlx {

/// The group as one of the engine's; null for a process that is alone. Throws InvalidArgument for a
/// group that MLX made.
std::shared_ptr<Group> group_in(const mx::distributed::Group& group);

/// Records an exchange over a group of several ranks; it runs when the result is evaluated. Throws
/// InvalidArgument where `x` does not fit.
mx::array record(const mx::array& x, const Exchange& exchange, const std::shared_ptr<Group>& group,
                 mx::StreamOrDevice stream);

}  // namespace mccl_mlx
