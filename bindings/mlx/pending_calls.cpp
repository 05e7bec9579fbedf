#include "pending_calls.h"

namespace mccl_mlx {

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
