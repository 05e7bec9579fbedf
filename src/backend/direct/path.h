// What carries out a group's collectives on its device's memory without the host.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "backend/request.h"
#include "device/lane.h"
#include "mccl/group.h"

namespace mccl::direct {

/// All ranks of a group have the same kind of path and ask it the same things in the same order.
/// Thread-safe as far as the group is.
class Path {
 public:
  virtual ~Path() = default;

  /// Before each collective of the group that is in no batch, of whatever memory, with the call's
  /// timeout, and whether it may wait for the other ranks.
  virtual void comes(const Request& /*request*/, std::chrono::milliseconds /*timeout*/,
                     bool /*may_meet*/) {}
  /// Whether it carries out such a call; the same on all ranks. The first that it takes may meet
  /// the others, by calls of the group's on host memory.
  virtual bool takes(const Request& request) = 0;
  /// Whether its ranks have yet to meet, which no call in a stream that is being captured can do.
  virtual bool has_to_meet() const { return false; }
  /// Has `stream` do the call. Throws what keeps it from that.
  virtual void enqueue(const Request& request, void* stream) = 0;
  /// The order of its calls on the device; null while it has taken none.
  virtual device::Lane* lane() = 0;
  /// A collective of the host: memory of device::Pool is used where it lies from now on, if it can
  /// be.
  virtual void reach_memory(Device /*device*/) {}
  /// Of all ranks together, when groups become of parts of this one: what `child`, this rank's, is
  /// to go by, if this path has something to give. Null: `child` makes its own, or this rank has
  /// none.
  virtual std::shared_ptr<Path> split(Group* /*child*/, int /*color*/, int /*key*/) { return {}; }
  /// Whether it keeps what its parent's gave for when it is needed.
  virtual bool inherits(const std::shared_ptr<Path>& /*given*/) { return false; }
  /// As candidates are named.
  virtual std::string name() const { return {}; }
  /// Why it has failed; empty while it has not.
  virtual std::string failure() = 0;
  /// Ends what runs, so that no stream waits for ever.
  virtual void abort() noexcept = 0;
};

}  // namespace mccl::direct
