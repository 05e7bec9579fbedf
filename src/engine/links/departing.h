// Links that are no longer used but still have bytes on their way: destroying one at once could
// lose what its last call has sent.
#pragma once

#include <poll.h>

#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "transport/link.h"

namespace mccl::engine {

/// Used under the engine's progress lock.
class Departing {
 public:
  void add(std::vector<std::unique_ptr<transport::Link>> links, Clock::time_point now);
  /// Destroys those whose bytes have arrived, and those that had time enough.
  void sweep(Clock::time_point now);
  void watch(std::vector<pollfd>& descriptors) const;
  bool empty() const { return links_.empty(); }

 private:
  std::vector<std::pair<std::unique_ptr<transport::Link>, Clock::time_point>> links_;
};

}  // namespace mccl::engine
