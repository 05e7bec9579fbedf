// The mean of arrays that a codec rounds for sending, and the part that rounding dropped on this
// rank.
#pragma once

#include <memory>
#include <utility>

#include "exchange_primitive.h"

namespace mccl_mlx {

/// Records the mean and the dropped part over a group of several ranks; evaluating either computes
/// both. They have no gradients. Throws InvalidArgument unless `x` holds floats.
std::pair<mx::array, mx::array> record_rounded_mean(const mx::array& x,
                                                    const mccl::Compression& compression,
                                                    const std::shared_ptr<Group>& group,
                                                    mx::StreamOrDevice stream);

}  // namespace mccl_mlx
