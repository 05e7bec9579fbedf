// The mean of arrays that travel rounded, and what rounding left out of this rank's.
#pragma once

#include <memory>
#include <utility>

#include "exchange_primitive.h"

namespace mccl_mlx {

/// Records both over a group of several ranks; they are made when either is evaluated. They have no
/// gradients. Throws InvalidArgument where `x` is not of floats.
std::pair<mx::array, mx::array> record_rounded_mean(const mx::array& x,
                                                    const mccl::Compression& compression,
                                                    const std::shared_ptr<Group>& group,
                                                    mx::StreamOrDevice stream);

}  // namespace mccl_mlx
