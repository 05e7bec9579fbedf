// Measures the cables of a job when it starts.
#pragma once

#include <memory>

#include "engine/engine.h"

namespace mccl::native {

/// Measures latency and rate of every pair that cables join, by exchanges along them. A collective
/// of all ranks, after which all have the same figures. No-op if every rank reaches every other
/// directly.
void measure_cables(const std::shared_ptr<engine::Engine>& engine);

}  // namespace mccl::native
