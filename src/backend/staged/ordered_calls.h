// Keeps a group's calls in order while some of them wait for a device. Ranks match calls by their
// order, so a call must not start before the earlier calls have started.
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

namespace mccl::native {
class NativeGroup;
}

namespace mccl::staged {

/// Thread-safe. The queue's own thread polls the devices; a waiting caller also polls them. Lock
/// order: the queue's lock, then the lock of a call. No lock is held while callbacks run.
class OrderedCalls : public std::enable_shared_from_this<OrderedCalls> {
 public:
  explicit OrderedCalls(native::NativeGroup& group) : group_(&group) {}
  ~OrderedCalls();

  /// True if calls wait in the queue. A new call on host memory must then wait behind them.
  bool is_busy() const { return attention_.load(std::memory_order_acquire) != 0; }

  Work enqueue(const Request& request, const CallOptions& options);
  /// Ends the calling thread's batch. Returns one Work for the batch's calls in this queue and for
  /// `others`, the Work of the batch's other calls.
  Work end_batch(Work others);

  /// Starts all calls that are ready.
  void advance();
  /// Starts the queue's thread if it does not run. Must precede look_after(). Returns the group;
  /// null if the queue is closed. Throws Error if the system provides no thread.
  native::NativeGroup* begin_watching();
  /// Makes the queue's thread poll `call` until the call has ended. Returns false if the queue is
  /// closed.
  bool look_after(std::shared_ptr<Returning> call);

  /// Closes the queue when the group is destroyed. Calls that have not started fail.
  void close();

 private:
  using CallPtr = std::shared_ptr<StagedCall>;
  /// Calls that start together.
  using Batch = std::vector<CallPtr>;
  using Starts = std::vector<std::pair<CallPtr, Work>>;

  Batch* open_batch();
  void watch();
  void help_running();
  bool finish_returning();
  CallPtr start_ready(Starts& started);
  void start(const Batch& batch, Starts& started);
  [[noreturn]] void fail_group(const StagedCall& call, const std::exception_ptr& error);
  void give_up(const CallPtr& call);

  std::atomic<int> attention_{0};  ///< Number of batches in `waiting_` and `open_`.
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  native::NativeGroup* group_;                         // guarded by mutex_; null once closed
  std::deque<Batch> waiting_;                          // guarded by mutex_
  std::map<std::thread::id, Batch> open_;              // guarded by mutex_
  std::vector<std::shared_ptr<Returning>> returning_;  // guarded by mutex_
  // Started calls, which the watcher thread helps to complete. Guarded by mutex_.
  std::deque<Work> running_;
  std::thread watcher_;  // guarded by mutex_
};

}  // namespace mccl::staged
