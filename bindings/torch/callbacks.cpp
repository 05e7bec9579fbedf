#include "callbacks.h"

#include <utility>

#include "base/thread.h"

namespace mccl_torch {

void CallbackThreads::run(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  if (tasks_.size() > idle_) {
    mccl::start_thread("mccl callbacks", [this] { work(); }).detach();
  } else {
    wake_.notify_one();
  }
}

bool CallbackThreads::drain(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return drained_.wait_for(lock, timeout, [this] { return tasks_.empty() && running_ == 0; });
}

void CallbackThreads::work() {
  constexpr std::chrono::seconds kIdleLife{10};
  std::unique_lock lock(mutex_);
  while (true) {
    ++idle_;
    const bool woken = wake_.wait_for(lock, kIdleLife, [this] { return !tasks_.empty(); });
    --idle_;
    if (!woken) return;
    auto task = std::move(tasks_.front());
    tasks_.pop_front();
    ++running_;
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
    --running_;
    if (tasks_.empty() && running_ == 0) drained_.notify_all();
  }
}

CallbackThreads& callback_threads() {
  static auto* threads = new CallbackThreads;
  return *threads;
}

}  // namespace mccl_torch
