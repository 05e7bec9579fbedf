// What other threads hand to the one that drives. Only to make a group needs memory: whoever has a
// group, or a call, can always hand it over.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/calls/operation_list.h"

namespace mccl::engine {

/// Thread-safe; its lock is held for a few instructions.
class Inbox {
 public:
  struct Content {
    std::vector<std::shared_ptr<GroupState>> created;
    OperationList submitted;
    std::vector<std::shared_ptr<GroupState>> aborted;
    std::vector<std::shared_ptr<GroupState>> closed;

    /// Room for each of so many groups to be created, aborted and closed.
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

  /// Throws std::bad_alloc, and then nothing has happened.
  void create(const std::shared_ptr<GroupState>& group) {
    put([&](Content& content) {
      content.reserve(groups_ + 1);
      spare_.reserve(groups_ + 1);
      ++groups_;
      content.created.push_back(group);
    });
  }
  /// Once for each group, as close() is.
  void abort(const std::shared_ptr<GroupState>& group) noexcept {
    put([&](Content& content) { content.aborted.push_back(group); });
  }
  void close(const std::shared_ptr<GroupState>& group) noexcept {
    put([&](Content& content) { content.closed.push_back(group); });
  }
  /// Calls `fill` with what is submitted, under the lock.
  template <typename Fill>
  void submit(Fill fill) {
    put([&](Content& content) { fill(content.submitted); });
  }

  bool waiting() const { return waiting_.load(std::memory_order_acquire); }
  /// Puts what waits into `taken`, which is empty and whose memory is used for what comes next.
  void take(Content& taken) noexcept {
    const std::lock_guard lock(mutex_);
    if (!taken.has_room_for(groups_)) std::swap(taken, spare_);
    waiting_.store(false, std::memory_order_relaxed);
    groups_ -= content_.closed.size();
    std::swap(content_, taken);
  }

  /// For a fork, and for what must be whole at one.
  std::mutex& mutex() { return mutex_; }

 private:
  template <typename Fill>
  void put(Fill fill) {
    const std::lock_guard lock(mutex_);
    fill(content_);
    waiting_.store(true, std::memory_order_release);
  }

  std::mutex mutex_;
  Content content_;         // guarded by mutex_, with room for all groups
  Content spare_;           // guarded by mutex_, as large, for when content_ is taken
  std::size_t groups_ = 0;  // guarded by mutex_: made and not closed
  std::atomic<bool> waiting_{false};
};

}  // namespace mccl::engine
