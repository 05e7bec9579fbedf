// Measures the job's links and windows when it starts, by a few calls of the kind that the job will
// make. Takes some milliseconds.
#pragma once

#include <memory>

#include "engine/engine.h"

namespace mccl::native {

/// A collective of all ranks, before they make groups. Measures the facts that the settings do not
/// give, agrees with the other ranks on medians, and passes them to the engine. Throws errors of
/// the calls and of the store.
void calibrate(const std::shared_ptr<engine::Engine>& engine);

}  // namespace mccl::native
