#include "turns.h"

namespace mccl_mlx {

TurnQueue::Number TurnQueue::take() {
  const std::lock_guard lock(mutex_);
  return taken_++;
}

void TurnQueue::await(Number number) {
  std::unique_lock lock(mutex_);
  moved_.wait(lock, [&] { return now_ == number; });
}

void TurnQueue::end(Number number) {
  const std::lock_guard lock(mutex_);
  ended_early_.insert(number);
  while (ended_early_.erase(now_) > 0) ++now_;
  moved_.notify_all();
}

PendingCalls& PendingCalls::of_process() {
  static auto* instance = new PendingCalls;
  return *instance;
}

PendingCalls::Ticket PendingCalls::begin() {
  const std::lock_guard lock(mutex_);
  ++count_;
  return {this, [](PendingCalls* calls) { calls->end(); }};
}

void PendingCalls::end() {
  const std::lock_guard lock(mutex_);
  if (--count_ == 0) ended_.notify_all();
}

bool PendingCalls::wait_until_none(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  return ended_.wait_for(lock, patience, [this] { return count_ == 0; });
}

}  // namespace mccl_mlx
