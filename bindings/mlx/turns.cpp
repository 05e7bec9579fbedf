#include "turns.h"

namespace mccl_mlx {

Line::Number Line::take() {
  const std::lock_guard lock(mutex_);
  return taken_++;
}

void Line::await(Number number) {
  std::unique_lock lock(mutex_);
  moved_.wait(lock, [&] { return now_ == number; });
}

void Line::end(Number number) {
  const std::lock_guard lock(mutex_);
  ended_early_.insert(number);
  while (ended_early_.erase(now_) > 0) ++now_;
  moved_.notify_all();
}

}  // namespace mccl_mlx
