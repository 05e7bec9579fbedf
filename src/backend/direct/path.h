// Interface of a path, which carries out a group's collectives on device memory without the host.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "backend/request.h"
#include "device/lane.h"
#include "mccl/group.h"

namespace mccl::direct {

/// All ranks of a group have the same kind of path and call its functions in the same order.
/// Thread-safe to the same degree as the group.
class Path {
 public:
  virtual ~Path() = default;

  /// Called before every unbatched collective of the group, on host or device memory. `timeout` is
  /// that of the collective. `may_meet`: true if this function may block until the other ranks make
  /// the same collective, so that the ranks can connect their devices (see takes()).
  virtual void comes(const Request& /*request*/, std::chrono::milliseconds /*timeout*/,
                     bool /*may_meet*/) {}
  /// True if the path supports the call; the same on all ranks. The first such call may make the
  /// ranks meet, that is, connect their devices by calls of the group on host memory.
  virtual bool takes(const Request& request) = 0;
  /// True if the ranks have not met yet. A call in a stream that is being captured cannot make them
  /// meet.
  virtual bool has_to_meet() const { return false; }
  /// Enqueues the call on `stream`. Throws if it cannot.
  virtual void enqueue(const Request& request, void* stream) = 0;
  /// The lane that orders the calls of this path on the device; null until the ranks have met.
  device::Lane* lane() const { return lane_; }
  /// All ranks must call it. From then on, calls access memory of device::Pool directly, without
  /// staging, if the devices of all ranks can reach it.
  virtual void reach_memory(Device /*device*/) {}
  /// Called on all ranks when the group is split. Returns the path for `child`, the new group of
  /// this rank. Returns null if `child` must make its own path, or if this rank is in no new group.
  virtual std::shared_ptr<Path> split(Group* /*child*/, int /*color*/, int /*key*/) { return {}; }
  /// Offers the path that the parent's split() returned. Returns true if this path keeps it for
  /// later use.
  virtual bool inherits(const std::shared_ptr<Path>& /*given*/) { return false; }
  /// Name of the path among the candidates of AutoPath; empty if it cannot be inherited.
  virtual std::string name() const { return {}; }
  /// The reason for which the path has failed; empty if it has not.
  virtual std::string failure() = 0;
  /// Ends the calls in flight, so that no stream waits forever. The lane marks them as given up.
  void abort() noexcept {
    was_aborted_ = true;
    if (device::Lane* const own = lane()) own->give_up();
    end_calls();
  }

 protected:
  bool was_aborted() const { return was_aborted_; }
  /// Sets the lane, which must live as long as the path. Called when the ranks have met.
  void order_by(device::Lane& lane) {
    lane_ = &lane;
    if (was_aborted_) lane.give_up();
  }

 private:
  virtual void end_calls() noexcept = 0;

  std::atomic<bool> was_aborted_{false};
  std::atomic<device::Lane*> lane_{nullptr};
};

}  // namespace mccl::direct
