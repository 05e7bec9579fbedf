// The fastest of several ways, where all ranks are on devices; the host's way where some are not.
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

/// A way that a group may have. `make` makes it here, without asking anybody, and throws what keeps
/// this machine from it.
struct Candidate {
  std::string name;
  std::function<std::shared_ptr<Path>()> make;
};

/// Nobody knows beforehand where the others' memory will lie. So with its first collective, the
/// second, the fourth and so on, each rank tells the others where its own does, by a small call
/// beside that one. With the first such in which all lie on devices, and all callers can wait for
/// the others, the ranks make the candidates that all of them have, measure them where there are
/// several, and agree on the figures; from then on their devices work by themselves. If some lie on
/// devices and others do not, the group goes through the host for good; its ranks go on asking,
/// since one that was on the host has not looked at the answers. As long as all lie on the host, it
/// stays open.
class AutoPath final : public Path {
 public:
  /// `group` outlives it.
  AutoPath(Group& group, std::vector<Candidate> candidates, std::chrono::milliseconds timeout,
           Log log);
  ~AutoPath() override;

  void comes(const Request& request, std::chrono::milliseconds timeout, bool may_meet) override;
  bool takes(const Request& request) override;
  bool has_to_meet() const override { return state_ == State::open; }
  void enqueue(const Request& request, void* stream) override;
  device::Lane* lane() override { return lane_.get(); }
  /// All ranks say by it that they are on devices: they meet where they have not.
  void reach_memory(Device device) override;
  std::shared_ptr<Path> split(Group* child, int color, int key) override;
  bool inherits(const std::shared_ptr<Path>& given) override;
  std::string failure() override;
  void abort() noexcept override;

 private:
  enum class State { open, asks, meets, through_host, direct };
  struct Asked;

  void ask(std::byte answer, std::chrono::milliseconds timeout);
  /// What has been answered, of a call on a device.
  void decide(Device device);
  void meet(Device device);
  void choose(Device device, const std::vector<std::string>& names);
  Path* way_for(const Request& request);
  std::vector<std::shared_ptr<Path>> ways() const;
  void stay_on_host(const std::string& reason);

  Group& group_;
  const std::vector<Candidate> candidates_;
  const std::chrono::milliseconds timeout_;
  const Log log_;

  std::atomic<State> state_{State::open};
  // By whoever calls collectives, one at a time:
  std::uint64_t calls_ = 0;
  bool may_meet_ = false;                      ///< The call that comes.
  std::vector<std::shared_ptr<Asked>> asked_;  ///< What has not been looked at yet.
  std::unique_ptr<device::Lane> lane_;
  std::vector<Figures> figures_;  ///< Of each way.
  std::vector<int> order_;        ///< Of the ways, for the call that came last.
  Collective last_call_ = Collective::barrier;
  std::size_t last_bytes_ = 0;

  std::shared_ptr<Path> inherited_;  ///< Of the path that this group's parent goes by.

  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Path>> ways_;  // guarded by mutex_; complete when direct
  bool aborted_ = false;                     // guarded by mutex_
};

}  // namespace mccl::direct
