// Of ways to a peer that nothing tells apart by what the systems say of them, the better by trial.
#pragma once

#include <memory>

#include "engine/engine.h"

namespace mccl::native {

/// Tries each way of each pair that has several, and has the links to come take the best. All ranks
/// call it; those that have nothing to try wait for nobody. INFO tells what was found.
void try_equal_ways(const std::shared_ptr<engine::Engine>& engine);

}  // namespace mccl::native
