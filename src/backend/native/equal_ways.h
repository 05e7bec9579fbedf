// Measures the routes to a peer that the operating system considers equivalent, and chooses the
// fastest.
#pragma once

#include <memory>

#include "engine/engine.h"

namespace mccl::native {

/// Measures each route of every pair of ranks that has several, and makes later links use the best
/// one. All ranks must call it, to exchange their numbers of routes; ranks without such a pair
/// then measure nothing. Logs the figures at INFO.
void try_equal_ways(const std::shared_ptr<engine::Engine>& engine);

}  // namespace mccl::native
