// The parts of the engine that its groups use.
#pragma once

#include <functional>

#include "base/log.h"
#include "engine/calls/completions.h"
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
  /// True if data to some ranks passes through other ranks, which relay it. A rank that failed may
  /// then have been a relay.
  bool along_cables;
  /// Makes the driver check the control connections in its next pass (Driven::pass()).
  const std::function<void()> look_beside_soon;
  /// True if the driving thread is a caller that waits for its call.
  const std::function<bool()> caller_drives;
  /// Called when the calls of a failed group have ended; may be null.
  const std::function<void()> on_failure = nullptr;
  /// Whether the collectives of new groups read large buffers in the memory of other processes of
  /// the node, where the system permits it. Guarded by the progress lock.
  bool reads_processes = false;
};

}  // namespace mccl::engine
