// Interface of a path, which carries out a group's collectives on device memory without the host.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "backend/direct/agreement.h"
#include "backend/request.h"
#include "base/log.h"
#include "device/serial_queue.h"
#include "mccl/group.h"

namespace mccl::direct {

/// All ranks of a group use the same subclass, and call its functions in the same order. The rules
/// for threads that Group documents also apply to the group's path.
class Path {
 public:
  virtual ~Path() = default;

  /// Called before every unbatched collective of the group, on host or device memory. `timeout` is
  /// the time limit of the collective. `may_meet`: true if this function may block until the other
  /// ranks call the same collective, so that the ranks can connect their devices (see takes()).
  virtual void before_collective(const Request& /*request*/, std::chrono::milliseconds /*timeout*/,
                                 bool /*may_meet*/) {}
  /// True if the path supports the call; the same on all ranks. During the first call that the path
  /// supports, the ranks may meet: they connect their devices by calls of the group on host memory.
  virtual bool takes(const Request& request) = 0;
  /// Returns the path that runs the call: this path or, for AutoPath, one of its candidates.
  /// Returns null if takes() is false.
  virtual Path* way_for(const Request& request) { return takes(request) ? this : nullptr; }
  /// True if the ranks have not met yet. The first call that the path supports must then not be
  /// captured in a graph, because a graph cannot record how the ranks connect.
  virtual bool has_to_meet() const { return false; }
  /// Enqueues the call on `stream`. Throws InvalidArgument if the call's memory is not on the
  /// device of the path, and PeerError if the path has failed.
  virtual void enqueue(const Request& request, void* stream) = 0;
  /// The queue that orders the calls of this path on the device; null until the ranks have met.
  device::SerialQueue* queue() const { return queue_; }
  /// All ranks must call it. Later calls may read inputs in memory of device::Pool in place,
  /// without staging, if the devices of all ranks can reach that memory.
  virtual void reach_memory(Device /*device*/) {}
  /// Called on all ranks when the group is split. Returns the path for `child`, the new group of
  /// this rank. Returns null if `child` must make its own path, or if this rank is in no new group.
  virtual std::shared_ptr<Path> split(Group* /*child*/, int /*color*/, int /*key*/) { return {}; }
  /// Offers `given`, a path that split() of the parent group's path has created, to this path.
  /// Returns true if this path keeps `given` for later use.
  virtual bool inherits(const std::shared_ptr<Path>& /*given*/) { return false; }
  /// Name of the path among the candidates of AutoPath; empty if the path cannot be inherited (see
  /// inherits()).
  virtual std::string name() const { return {}; }
  /// Name of the library or code that carries out the calls, for the flight recorder. The text is
  /// never freed.
  virtual std::string_view algorithm() const { return "gpu"; }
  /// The reason why the path has failed; empty if it has not failed.
  virtual std::string failure() = 0;
  /// Ends the calls in flight, so that no stream waits forever for them. The queue marks these
  /// calls as given up.
  void abort() noexcept {
    was_aborted_ = true;
    if (device::SerialQueue* const own = queue()) own->give_up();
    end_calls();
  }

 protected:
  bool was_aborted() const { return was_aborted_; }
  /// Sets the queue that orders this path's calls. The queue must live as long as the path. Called
  /// when the ranks have met.
  void order_by(device::SerialQueue& queue) {
    queue_ = &queue;
    if (was_aborted_) queue.give_up();
  }

 private:
  virtual void end_calls() noexcept = 0;

  std::atomic<bool> was_aborted_{false};
  std::atomic<device::SerialQueue*> queue_{nullptr};
};

/// Options that a group passes to its paths. All groups of the job share `notices`.
struct PathOptions {
  Group& group;
  std::chrono::milliseconds timeout;
  Log log;
  std::shared_ptr<Notices> notices;
};

/// A path on which each rank has one device. The first call that it supports sets the device, and
/// connects the ranks' devices by calls of the group on host memory.
class DevicePath : public Path {
 public:
  bool takes(const Request& request) final {
    if (!supports(request)) return false;
    connect(device_of(request));
    return queue() != nullptr;
  }
  bool has_to_meet() const final { return !has_met_; }
  void enqueue(const Request& request, void* stream) final;

 protected:
  explicit DevicePath(PathOptions options) : options_(std::move(options)) {}

  /// Connects the ranks' devices, once.
  void connect(Device device) {
    if (has_met_) return;
    has_met_ = true;
    device_ = device;
    meet();
  }
  /// Creates `own_queue_`. Called by meet() if all ranks can use the path.
  void make_queue();
  /// Throws the error of a call that cannot start because the path has failed.
  [[noreturn]] void refuse(const Request& request, const std::string& reason) const;

  virtual bool supports(const Request& request) const = 0;
  /// Connects the ranks' devices. Calls make_queue() if all ranks can use the path.
  virtual void meet() = 0;
  virtual void start(const Request& request, void* stream) = 0;

  Group& group() const { return options_.group; }

  const PathOptions options_;
  bool has_met_ = false;
  Device device_;
  std::unique_ptr<device::SerialQueue> own_queue_;  ///< Null if the ranks cannot use the path.
};

}  // namespace mccl::direct
