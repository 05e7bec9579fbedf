// Who goes next. MLX runs the operations of each stream on a thread of its own, and the engine
// matches collectives across ranks by the order in which they are called; so every operation of a
// group takes a turn while the graph is evaluated, in an order that the program decides, and the
// threads of the streams start what they have in the order of the turns.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>

namespace mccl_mlx {

/// A queue of turns. Thread-safe.
///
/// It cannot deadlock if whoever takes a turn also enqueues its operation before anybody takes the
/// next one: all that an operation waits for, in its stream or in the line, was enqueued earlier.
class Line {
 public:
  /// Number of a turn.
  using Number = std::uint64_t;

  Number take();
  /// Blocks until all earlier turns have ended.
  void await(Number number);
  /// May come before the turn does, when what was to be done was dropped.
  void end(Number number);

 private:
  std::mutex mutex_;
  std::condition_variable moved_;
  Number taken_ = 0;
  Number now_ = 0;
  std::set<Number> ended_early_;
};

/// One turn in a line; it ends when told or destroyed, so that an operation that never runs holds
/// up nobody.
class Turn {
 public:
  explicit Turn(std::shared_ptr<Line> line) : line_(std::move(line)), number_(line_->take()) {}
  ~Turn() { end(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  void await() const { line_->await(number_); }
  void end() {
    if (!ended_) line_->end(number_);
    ended_ = true;
  }

 private:
  const std::shared_ptr<Line> line_;
  const Line::Number number_;
  bool ended_ = false;
};

}  // namespace mccl_mlx
