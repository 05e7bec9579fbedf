// Measures the cables of a job when it starts.
#pragma once

#include <memory>

#include "engine/engine.h"

namespace mccl::native {

/// Measures the latency and rate of every pair of ranks that cables join, by messages along these
/// cables. All ranks must call it, and all get the same figures. No-op if every rank reaches every
/// other directly.
void measure_cables(const std::shared_ptr<engine::Engine>& engine);

}  // namespace mccl::native
