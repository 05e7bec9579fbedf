// The order in which a device carries out the calls of one group by itself.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "device/depot.h"

namespace mccl::device {

/// Calls run one after another, whatever streams they come from: each rank's in the same order, so
/// that none waits for a call that its peer has behind another. Thread-safe.
class Lane {
 public:
  /// Enqueues a call on the stream that it is given.
  using Act = std::function<void(void* stream)>;

  explicit Lane(std::shared_ptr<Depot> depot);

  /// On a queue of the lane's own, behind what `stream` has been given; the number of the call.
  Word run_beside(void* stream, const Act& act);
  /// On the caller's own stream. Nothing tells the host of its end. Where the stream is being
  /// captured, its order among the calls that are not is the caller's to keep.
  /// `may_go`: the stream may be destroyed afterwards and is not touched again, so its end is noted
  /// at once. Any other stream is asked for its end when a call comes on another one; calls on one
  /// stream ask the driver for nothing.
  void run_on(void* stream, bool may_go, const Act& act);

  /// The number by which ended() knows that all calls so far are over.
  Word end();
  /// Whether a call that runs beside its stream is over, and all before it.
  bool ended(Word number) const { return reached(ended_, number); }
  /// What `stream` is given from now on runs after the calls so far.
  void lead(void* stream);

  Accelerator& accelerator() const { return depot_->accelerator(); }

 private:
  const std::shared_ptr<Depot> depot_;
  const Block words_;
  Word* const ended_;
  std::mutex mutex_;
  const std::unique_ptr<Queue> queue_;
  Word number_ = 0;                 // guarded by mutex_
  bool own_queue_is_last_ = false;  // guarded by mutex_
  bool used_ = false;               // guarded by mutex_
  void* last_stream_ = nullptr;     // guarded by mutex_; may be gone where the own queue is last
};

}  // namespace mccl::device
