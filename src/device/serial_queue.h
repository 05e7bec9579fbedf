// Orders those calls of one group that a device carries out without the host.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "device/depot.h"

namespace mccl::device {

/// Runs calls one after another, whichever streams they use. Every rank uses the same order, so two
/// ranks never wait for each other in different calls. Thread-safe.
class SerialQueue {
 public:
  /// A function that enqueues one call on `stream`.
  using Act = std::function<void(void* stream)>;

  explicit SerialQueue(std::shared_ptr<Depot> depot);
  /// If the device has not finished, its queue may still write to the memory of ended(), which is
  /// then never freed or reused.
  ~SerialQueue();

  /// Runs the call on a separate queue of the device, after all work that was submitted to `stream`
  /// so far. Returns the number of the call.
  Word run_beside(void* stream, const Act& act);
  /// Runs the call on the caller's stream. The call gets no number, so the host cannot find out
  /// when it has ended, unless end() is called later. If the stream is being captured, the caller
  /// must order the call relative to calls that are not captured.
  ///
  /// `may_go`: true if the caller will not use the stream again and may destroy it. The queue then
  /// records the end of the call immediately. Otherwise it records the end only if a call on a
  /// different stream follows, so that consecutive calls on one stream need no driver calls.
  void run_on(void* stream, bool may_go, const Act& act);

  /// Returns a number for which ended() is true once all calls so far have ended.
  Word end();
  /// True if the call with this number, and all calls before it, have ended.
  bool ended(Word number) const { return reached(ended_, number); }
  /// Makes has_given_up() true for the calls that have not ended yet, even if they end later. Only
  /// the first call of this function has an effect.
  void give_up() noexcept;
  bool has_given_up(Word number) const;
  /// Makes later work of `stream` wait for all calls that were run before.
  void lead(void* stream);

  Accelerator& accelerator() const { return depot_->accelerator(); }

 private:
  const std::shared_ptr<Depot> depot_;
  Block words_;
  Word* const ended_;
  /// 0 before give_up(). Afterwards kGivenUp, plus the number of the last call that had ended by
  /// then.
  std::atomic<std::uint64_t> given_up_{0};
  std::mutex mutex_;
  const std::unique_ptr<Queue> queue_;
  Word number_ = 0;                 // guarded by mutex_
  bool own_queue_is_last_ = false;  // guarded by mutex_
  bool used_ = false;               // guarded by mutex_
  void* last_stream_ = nullptr;     // guarded by mutex_; invalid if own_queue_is_last_
};

}  // namespace mccl::device
