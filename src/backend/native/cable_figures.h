// What each cable of a job can do, measured when the job starts.
#pragma once

#include <memory>

#include "engine/engine.h"

namespace mccl::native {

/// Latency and rate of every pair that cables join, by exchanges along them: all ranks call it, and
/// know the same figures afterwards. Nothing where every rank reaches every other.
void measure_cables(const std::shared_ptr<engine::Engine>& engine);

}  // namespace mccl::native
