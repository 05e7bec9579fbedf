// The order of a group's calls where some wait for a device. Ranks match calls by their order, so
// whatever is called after one whose input is still on its way waits behind it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "backend/staged/call.h"
#include "backend/staged/host_calls.h"

namespace mccl::staged {

/// Thread-safe. A thread of its own looks after what a device has to do; a caller that waits looks
/// too. Locks: the line's, then those of a call; none is held while callbacks run.
class Line : public std::enable_shared_from_this<Line> {
 public:
  explicit Line(HostCalls& group) : group_(&group) {}
  ~Line();

  /// Whether a call of host memory must come here, too.
  bool is_busy() const { return attention_.load(std::memory_order_acquire) != 0; }

  Work enqueue(const Request& request, const CallOptions& options);
  /// The calls of this thread's batch that came here, and `others`, which did not.
  Work end_batch(Work others);

  /// Starts the calls that may.
  void advance();
  /// Until the device has taken a call's output; false when the line is closed.
  bool look_after(std::shared_ptr<Returning> call);

  /// The group goes: what has not started fails.
  void close();

 private:
  using CallPtr = std::shared_ptr<Call>;
  /// Calls that start together.
  using Batch = std::vector<CallPtr>;
  using Starts = std::vector<std::pair<CallPtr, Work>>;

  Batch* open_batch();
  void begin_watching();
  void watch();
  void help_running();
  bool finish_returning();
  CallPtr start_ready(Starts& started);
  void start(const Batch& batch, Starts& started);
  [[noreturn]] void fail_group(const Call& call, const std::exception_ptr& error);
  void give_up(const CallPtr& call);

  std::atomic<int> attention_{0};  ///< Calls that wait, and batches that are open.
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  HostCalls* group_;                                   // guarded by mutex_; null when closed
  std::deque<Batch> waiting_;                          // guarded by mutex_
  std::map<std::thread::id, Batch> open_;              // guarded by mutex_
  std::vector<std::shared_ptr<Returning>> returning_;  // guarded by mutex_
  std::deque<Work> running_;  // guarded by mutex_; of the watcher's thread alone to help along
  std::thread watcher_;       // guarded by mutex_
};

}  // namespace mccl::staged
