// The parts of the engine that its groups use.
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

/// References to the parts of the engine that groups use. They must stay valid as long as the
/// engine uses a group.
struct Surroundings {
  const Config& config;
  const Log& log;
  Peers& peers;
  LinkMaker& links;
  Completions& completions;
  Staging& staging;
  Metrics& metrics;
  const node::SharedMemory& memory;
  /// True if some ranks are reached through relays. A rank that failed may then have been a relay.
  bool along_cables;
  /// Makes the next pass check the control connections.
  const std::function<void()> look_beside_soon;
  /// True if the driving thread is a caller that waits for its call.
  const std::function<bool()> caller_drives;
};

}  // namespace mccl::engine
