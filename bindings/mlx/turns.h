// Keeps a group's operations in the same order on all ranks. MLX runs the operations of each stream
// on a separate thread, but the engine matches collectives across ranks by order of call. Every
// operation of a group therefore takes a turn (the next number of a queue) while the program
// evaluates the graph. The streams' threads start their operations in the order of these turns.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>

namespace mccl_mlx {

/// Hands out turns, which are consecutive numbers, and lets a thread wait for its turn.
/// Thread-safe.
///
/// The queue cannot deadlock if each operation is enqueued in its stream before the next turn is
/// taken. Everything that an operation waits for, in its stream or in the queue, was then enqueued
/// before the operation.
class TurnQueue {
 public:
  using Number = std::uint64_t;

  Number take();
  /// Blocks until all earlier turns have ended.
  void await(Number number);
  /// Ends a turn. May be called before the turn has come, if its operation will never run.
  void end(Number number);

 private:
  std::mutex mutex_;
  std::condition_variable moved_;
  Number taken_ = 0;
  Number now_ = 0;
  std::set<Number> ended_early_;
};

/// One turn in a queue. It ends when end() is called or the object is destroyed, so that an
/// operation that never runs does not block others.
class Turn {
 public:
  explicit Turn(std::shared_ptr<TurnQueue> queue)
      : queue_(std::move(queue)), number_(queue_->take()) {}
  ~Turn() { end(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  void await() const { queue_->await(number_); }
  void end() {
    if (!ended_) queue_->end(number_);
    ended_ = true;
  }

 private:
  const std::shared_ptr<TurnQueue> queue_;
  const TurnQueue::Number number_;
  bool ended_ = false;
};

/// Counts the unfinished calls in MLX's streams, which may still run when the program ends.
/// Thread-safe. A process has one instance, which is never destroyed because streams may outlive
/// static destructors.
class PendingCalls {
 public:
  static PendingCalls& of_process();

  /// A call is pending as long as a copy of its ticket lives.
  using Ticket = std::shared_ptr<PendingCalls>;
  Ticket begin();

  /// Blocks until no call is pending, for at most `patience`. Returns false if calls are still
  /// pending.
  bool wait_until_none(std::chrono::milliseconds patience);

 private:
  void end();

  std::mutex mutex_;
  std::condition_variable ended_;
  std::size_t count_ = 0;  // guarded by mutex_
};

}  // namespace mccl_mlx
