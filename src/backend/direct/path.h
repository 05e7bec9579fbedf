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
  /// the call's; `may_meet` is true if the call may wait for the other ranks.
  virtual void comes(const Request& /*request*/, std::chrono::milliseconds /*timeout*/,
                     bool /*may_meet*/) {}
  /// True if the path carries out such a call; the same on all ranks. The first call that it takes
  /// may make the ranks meet, through calls of the group on host memory.
  virtual bool takes(const Request& request) = 0;
  /// True if the ranks have not met yet. They cannot meet in a stream that is being captured.
  virtual bool has_to_meet() const { return false; }
  /// Enqueues the call on `stream`. Throws if it cannot.
  virtual void enqueue(const Request& request, void* stream) = 0;
  /// The lane that orders its calls on the device; null until it has taken a call.
  device::Lane* lane() const { return lane_; }
  /// A collective on the host. From then on, memory of device::Pool is used in place where the
  /// devices reach it.
  virtual void reach_memory(Device /*device*/) {}
  /// A collective of all ranks, called when the group is split. Returns the path for `child`, this
  /// rank's part. Returns null if `child` must make its own path, or if this rank is in no part.
  virtual std::shared_ptr<Path> split(Group* /*child*/, int /*color*/, int /*key*/) { return {}; }
  /// Offers the path that the parent's split() returned. Returns true if this path keeps it for
  /// later use.
  virtual bool inherits(const std::shared_ptr<Path>& /*given*/) { return false; }
  /// Name of the path among the candidates of AutoPath; empty if it cannot be inherited.
  virtual std::string name() const { return {}; }
  /// The reason for which the path has failed; empty if it has not.
  virtual std::string failure() = 0;
  /// Ends running calls, so that no stream waits forever. The lane counts them as given up.
  void abort() noexcept {
    was_aborted_ = true;
    if (device::Lane* const own = lane()) own->give_up();
    end_calls();
  }

 protected:
  bool was_aborted() const { return was_aborted_; }
  /// Called when the ranks have met, with a lane that lives as long as the path.
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
