// Chooses among the routes to a peer that look equally fast to the operating system, by trying
// them.
#pragma once

#include <memory>

#include "engine/engine.h"

namespace mccl::native {

/// Measures each route of each pair that has several, and makes later links use the best one. A
/// collective of all ranks; a rank with nothing to try waits for no other. Logs the figures at
/// INFO.
void try_equal_ways(const std::shared_ptr<engine::Engine>& engine);

}  // namespace mccl::native
