// Groups and calls that other threads submit to the driver. Only create() allocates memory, so the
// submission of calls, aborts and closes cannot fail.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/calls/operation.h"

namespace mccl::engine {

/// A queue of new groups, calls, aborts and closes, which any thread fills and the driver empties.
/// Thread-safe; its lock is held for a few instructions.
class Inbox {
 public:
  struct Content {
    std::vector<std::shared_ptr<GroupState>> created;
    OperationList submitted;
    std::vector<std::shared_ptr<GroupState>> aborted;
    std::vector<std::shared_ptr<GroupState>> closed;

    /// Reserves capacity for `groups` groups in each of `created`, `aborted` and `closed`.
    void reserve(std::size_t groups) {
      for (auto* each : {&created, &aborted, &closed}) {
        if (each->capacity() < groups) each->reserve(std::max(groups, 2 * each->capacity()));
      }
    }
    bool has_room_for(std::size_t groups) const {
      return std::min({created.capacity(), aborted.capacity(), closed.capacity()}) >= groups;
    }
    void clear() {
      for (auto* each : {&created, &aborted, &closed}) each->clear();
    }
  };

  /// Submits a new group. If there is no memory, throws std::bad_alloc without any effect.
  void create(const std::shared_ptr<GroupState>& group) {
    put([&](Content& content) {
      content.reserve(groups_ + 1);
      spare_.reserve(groups_ + 1);
      ++groups_;
      content.created.push_back(group);
    });
  }
  /// Submits a group that has been marked failed. Called at most once for each group.
  void abort(const std::shared_ptr<GroupState>& group) noexcept {
    put([&](Content& content) { content.aborted.push_back(group); });
  }
  /// Submits a group that the driver must end. Called at most once for each group.
  void close(const std::shared_ptr<GroupState>& group) noexcept {
    put([&](Content& content) { content.closed.push_back(group); });
  }
  /// Calls `fill` with the list of submitted calls, under the lock.
  template <typename Fill>
  void submit(Fill fill) {
    put([&](Content& content) { fill(content.submitted); });
  }

  bool waiting() const { return waiting_.load(std::memory_order_acquire); }
  /// Moves the content into `taken`, which must be empty. The empty lists of `taken` become the
  /// inbox's lists, so that their capacity is reused for the next submissions.
  void take(Content& taken) noexcept {
    const std::lock_guard lock(mutex_);
    if (!taken.has_room_for(groups_)) std::swap(taken, spare_);
    waiting_.store(false, std::memory_order_relaxed);
    groups_ -= content_.closed.size();
    std::swap(content_, taken);
  }

  /// The inbox's lock. It is held across a fork, and it also guards the engine's group names, which
  /// must be consistent in the child.
  std::mutex& mutex() { return mutex_; }

 private:
  template <typename Fill>
  void put(Fill fill) {
    const std::lock_guard lock(mutex_);
    fill(content_);
    waiting_.store(true, std::memory_order_release);
  }

  std::mutex mutex_;
  // The following three members are guarded by mutex_.
  Content content_;  // Content not taken yet. Its lists have capacity for `groups_` groups.
  // Empty lists with capacity for `groups_` groups. take() uses them if `taken` has less capacity.
  Content spare_;
  std::size_t groups_ = 0;  // Number of groups made and not closed.
  std::atomic<bool> waiting_{false};
};

}  // namespace mccl::engine
