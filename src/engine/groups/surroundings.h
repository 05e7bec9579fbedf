// What a group needs of the engine that it lives in.
#pragma once

#include <functional>
#include <memory>

#include "base/log.h"
#include "engine/calls/completions.h"
#include "engine/calls/staging.h"
#include "engine/links/link_maker.h"
#include "engine/peers/peers.h"
#include "mccl/config.h"
#include "mccl/metrics.h"
#include "node/neighbour.h"

namespace mccl::engine {

/// All of it outlives the groups' use by the engine.
struct Surroundings {
  const Config& config;
  const Log& log;
  Peers& peers;
  LinkMaker& links;
  Completions& completions;
  Staging& staging;
  Metrics& metrics;
  const node::SharedMemory& memory;
  /// Ranks reach others through ranks, of which the one that has failed may be one.
  bool along_cables;
  /// The control connections are to be looked at in the next pass.
  const std::function<void()> look_beside_soon;
  /// A caller drives, for a call that it waits for.
  const std::function<bool()> caller_drives;
};

}  // namespace mccl::engine
