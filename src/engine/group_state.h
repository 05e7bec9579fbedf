// What the engine knows of one group.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/channel.h"
#include "engine/executor.h"
#include "engine/failure.h"
#include "engine/group_window.h"
#include "engine/messages.h"
#include "engine/operation.h"
#include "engine/plan.h"
#include "engine/recorder.h"

namespace mccl::engine {

/// Identity is constant; the failure has a lock of its own, so that an abort never waits for the
/// engine; the rest is touched only under the engine's progress lock.
class GroupState {
 public:
  GroupState(std::string group_name, std::uint64_t group_id, std::vector<int> group_members,
             int world_rank, std::chrono::milliseconds group_timeout, const schedule::Facts& facts,
             bool crc, Channels::Request request);

  const std::string name;
  const std::uint64_t id;          ///< Equal on all members.
  const std::vector<int> members;  ///< World ranks.
  const int rank;
  const std::chrono::milliseconds timeout;  ///< Of calls that give none.

  int size() const { return static_cast<int>(members.size()); }
  /// -1 for a stranger.
  int rank_of(int world_rank) const;
  /// "rank 1", with the world's rank where it differs.
  std::string name_of_rank(int group_rank) const;

  bool failed() const { return failed_.load(std::memory_order_acquire); }
  /// The first reason wins; false for the later ones.
  bool fail(Failure failure);
  /// Kind and reason; only when failed.
  Failure failure() const;

  // Under the progress lock.
  Channels channels;
  GroupWindow window;
  PlanCache plans;
  Executor executor;
  Messages messages;
  Recorder recorder;
  std::deque<std::shared_ptr<Operation>> queue;  ///< Collectives in order; the first one runs.
  bool failure_announced = false;
  /// A link broke: the peer may have died, or it closed the link because of a failure that it is
  /// about to announce. The announcement is waited for a moment, because it says more.
  std::optional<Failure> suspicion;
  Clock::time_point suspected_at;
  std::atomic<std::uint64_t> sequence{0};  ///< Of the last collective submitted.
  bool active = false;                     ///< Listed in the engine's active groups.
  std::int64_t staging_bytes = 0;          ///< As the engine has counted it.
  std::uint64_t calls_when_idle = 0;       ///< The last call, when that was looked at last.
  Clock::time_point idle_since;
  Clock::time_point last_progress;
  Clock::time_point next_probe;
  std::vector<std::string> peer_status;  ///< What peers answered to the last probe, for messages.

  bool idle() const { return queue.empty() && messages.idle(); }
  /// Gives back the memory that it takes of the engine. It has failed, and nothing of it is under
  /// way; no call starts any more.
  /// Returns what GroupWindow::release() does.
  std::vector<std::pair<int, transport::shm::RangePlace>> release();

 private:
  std::atomic<bool> failed_{false};
  mutable std::mutex failure_mutex_;
  Failure failure_;  // guarded by failure_mutex_
};

/// The id that a group's identity stands for on the wire (FNV-1a, 64 bits).
std::uint64_t group_id(const std::string& identity);

}  // namespace mccl::engine
