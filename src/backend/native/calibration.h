// Measures the job's links and shared-memory windows when the job starts, with a few messages and
// collectives. Takes some milliseconds.
#pragma once

#include <memory>

#include "engine/engine.h"

namespace mccl::native {

/// Measures the parameters of the cost model (schedule::Facts) that the settings do not set. The
/// ranks agree on common values, mostly the medians over the ranks, and pass these values to the
/// engine. All ranks must call this function before they create groups. Throws the errors of the
/// calls, for example if a rank dies meanwhile.
void calibrate(const std::shared_ptr<engine::Engine>& engine);

}  // namespace mccl::native
