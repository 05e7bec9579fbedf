// Measures the job's links and shared-memory windows when it starts, by a few calls of the kind
// that the job will make. Takes some milliseconds.
#pragma once

#include <memory>

#include "engine/engine.h"

namespace mccl::native {

/// Measures the parameters of the cost model (facts) that the settings do not set, agrees with the
/// other ranks on medians, and passes them to the engine. All ranks must call it, before they
/// create groups. Throws the errors of the calls and of the store.
void calibrate(const std::shared_ptr<engine::Engine>& engine);

}  // namespace mccl::native
