// Chooses the fastest of several device paths if all ranks use device memory. Otherwise calls go
// through the host.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/direct/figures.h"
#include "backend/direct/path.h"
#include "base/log.h"

namespace mccl::direct {

/// A path that a group may use. `make` creates the path on this rank without contacting other
/// ranks, and throws if this machine cannot use it.
struct PathCandidate {
  std::string name;
  std::function<std::shared_ptr<Path>()> make;
};

/// No rank knows in advance whether the other ranks use host or device memory. Together with the
/// group's collectives number 1, 2, 4, 8 and so on, each rank therefore reports where its own
/// memory lies, in a small asynchronous all_gather.
///
/// Once all ranks report device memory and calls that may block, the ranks meet: they create the
/// candidates that all ranks support, measure them if there are several, and agree on the measured
/// times. Later calls run on the devices without the host.
///
/// If the reports about one collective show both host and device memory, all later calls of the
/// group go through the host. All ranks still continue to report: a rank whose memory is on the
/// host has not read the reports, so it starts further all_gathers, in which all ranks must take
/// part. While all ranks use host memory, no choice is made.
class AutoPath final : public Path {
 public:
  /// `group` must outlive this object.
  AutoPath(Group& group, std::vector<PathCandidate> candidates, std::chrono::milliseconds timeout,
           Log log);
  ~AutoPath() override;

  void before_collective(const Request& request, std::chrono::milliseconds timeout,
                         bool may_meet) override;
  Path* way_for(const Request& request) override;
  bool takes(const Request& request) override { return way_for(request) != nullptr; }
  bool has_to_meet() const override { return state_ == State::open; }
  void enqueue(const Request& request, void* stream) override {
    way_for(request)->enqueue(request, stream);
  }
  /// All ranks must call this function. The call shows that all ranks use devices, so the ranks
  /// meet in it if they have not met yet.
  void reach_memory(Device device) override;
  std::shared_ptr<Path> split(Group* child, int color, int key) override;
  bool inherits(const std::shared_ptr<Path>& given) override;
  std::string failure() override;
  void end_calls() noexcept override;

 private:
  enum class State { open, asks, meets, through_host, direct };
  struct Asked;

  void ask(std::byte answer, std::chrono::milliseconds timeout);
  /// Waits for the reports that ask() has requested. According to the reports, lets the ranks meet,
  /// sends all later calls of the group through the host, or does nothing. `device` is the current
  /// call's device.
  void decide(Device device);
  void meet(Device device);
  void choose(Device device, const std::vector<std::string>& names);
  Path* fastest_for(const Request& request);
  std::vector<std::shared_ptr<Path>> ways() const;
  void stay_on_host(const std::string& reason);

  Group& group_;
  const std::vector<PathCandidate> candidates_;
  const std::chrono::milliseconds timeout_;
  const Log log_;

  std::atomic<State> state_{State::open};
  // The members from here to `last_bytes_` are used only by collective calls and reach_memory(),
  // which do not overlap.
  std::uint64_t calls_ = 0;
  bool may_meet_ = false;  ///< True if the current call may wait for the other ranks.
  std::vector<std::shared_ptr<Asked>> asked_;  ///< Reports that have not been read.
  std::unique_ptr<device::SerialQueue> own_queue_;
  std::vector<Figures> figures_;  ///< Measured times of each path in `ways_`.
  std::vector<int> order_;        ///< Indices into `ways_`, fastest first for `last_call_`.
  Collective last_call_ = Collective::barrier;
  std::size_t last_bytes_ = 0;

  std::shared_ptr<Path> inherited_;  ///< Made by the parent group's path in split(); may be null.

  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Path>> ways_;  // guarded by mutex_; constant in State::direct
};

}  // namespace mccl::direct
