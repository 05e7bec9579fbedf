// What the job's links and windows can do, measured when it starts by a few calls of the kind that
// will be made, in some milliseconds.
#pragma once

#include <memory>

#include "engine/engine.h"

namespace mccl::native {

/// All ranks call it, before they make groups. Measures what the settings do not give, agrees with
/// the other ranks on the medians, and tells the engine. Throws the errors of the calls and of the
/// store.
void calibrate(const std::shared_ptr<engine::Engine>& engine);

}  // namespace mccl::native
