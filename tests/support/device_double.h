// Simulates a device: its memory is accessible only to its own thread, and its queues run at random
// times. Host code that touches device memory crashes the test. Code that reads pinned memory
// before the device has written it reads garbage.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/device.h"
#include "mccl/error.h"
#include "support/forbidden_memory.h"

namespace mccl::testing {

class DeviceDouble final : public device::Accelerator {
 public:
  class Queue;

  explicit DeviceDouble(unsigned seed = 1) : chance_(seed) {
    default_queue_ = make_queue();
    thread_ = std::thread([this] { run(); });
  }
  ~DeviceDouble() override {
    {
      const std::lock_guard lock(mutex_);
      stops_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  const std::string& name() const override { return name_; }
  std::string bus() const override { return plugged_into; }
  std::unique_ptr<device::Queue> make_queue() override;
  std::shared_ptr<void> make_memory(std::size_t bytes) override {
    const auto memory = allocate(bytes);
    return {memory, memory->outside()};
  }
  void finish() override { ++times_finished; }
  std::atomic<int> times_finished{0};
  /// Small, so that calls in tests are split into pieces.
  std::size_t least_piece() const override { return 64; }
  std::byte* allocate_pinned(std::size_t bytes) override {
    return static_cast<std::byte*>(::operator new(bytes, std::align_val_t(4096)));
  }
  void free_pinned(std::byte* memory) noexcept override {
    ::operator delete(memory, std::align_val_t(4096));
  }
  std::string objection(const ConstBuffer& memory) const override {
    const std::lock_guard lock(mutex_);
    return memory.count == 0 || find(memory.data) ? "" : "lies on no device";
  }
  bool is_capturing(void* stream) const override;

  std::string plugged_into = "double";
  /// If true, make_queue() throws.
  std::atomic<bool> refuses_queues{false};

  static constexpr int kAnyNumber = 1 << 30;
  /// Number of further copies to the host that the device will make.
  std::atomic<int> copies_to_host{kAnyNumber};
  /// Number of copies to the device made so far.
  std::atomic<int> copies_to_device{0};

  /// Allocates device memory. at() returns the address through which actions of queues access it.
  std::shared_ptr<ForbiddenMemory> allocate(std::size_t bytes) {
    auto memory = std::make_shared<ForbiddenMemory>(bytes);
    const std::lock_guard lock(mutex_);
    std::erase_if(memories_, [](const auto& entry) { return entry.second.expired(); });
    memories_[memory->outside()] = memory;
    return memory;
  }
  std::byte* at(const void* outside) const {
    const std::lock_guard lock(mutex_);
    const auto memory = find(outside);
    if (!memory)
      throw std::logic_error("a queue copies from or to memory that is not its device's");
    return memory->inside() + (static_cast<const std::byte*>(outside) - memory->outside());
  }

 private:
  struct Step {
    std::function<bool()> ready;
    std::function<void()> act;
  };
  struct State {
    std::deque<Step> steps;
    bool captures = false;
  };

  std::shared_ptr<ForbiddenMemory> find(const void* outside) const {
    const auto after = memories_.upper_bound(static_cast<const std::byte*>(outside));
    if (after == memories_.begin()) return nullptr;
    const auto memory = std::prev(after)->second.lock();
    if (!memory || static_cast<const std::byte*>(outside) >= memory->outside() + memory->bytes())
      return nullptr;
    return memory;
  }

  Queue& queue_of(void* stream) const;

  void push(const std::shared_ptr<State>& state, Step step) {
    {
      const std::lock_guard lock(mutex_);
      state->steps.push_back(std::move(step));
    }
    changed_.notify_all();
  }

  /// Runs steps until the device stops. Repeatedly picks a random queue whose first step is ready,
  /// and runs that step.
  void run() {
    std::unique_lock lock(mutex_);
    while (!stops_) {
      std::erase_if(states_, [](const auto& state) { return state.expired(); });
      std::vector<std::shared_ptr<State>> ready;
      bool blocked = false;
      for (const auto& weak : states_) {
        const auto state = weak.lock();
        if (!state || state->steps.empty()) continue;
        const bool may = !state->steps.front().ready || state->steps.front().ready();
        if (may) ready.push_back(state);
        blocked = blocked || !may;
      }
      if (ready.empty()) {
        if (!blocked) {
          changed_.wait(lock);
          continue;
        }
        lock.unlock();
        std::this_thread::yield();
        lock.lock();
        continue;
      }
      const auto chosen = ready[chance_() % ready.size()];
      const Step step = std::move(chosen->steps.front());
      chosen->steps.pop_front();
      lock.unlock();
      step.act();
      lock.lock();
    }
  }

  const std::string name_ = "double:0";
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::weak_ptr<State>> states_;                             // guarded by mutex_
  std::map<const std::byte*, std::weak_ptr<ForbiddenMemory>> memories_;  // guarded by mutex_
  std::minstd_rand chance_;
  bool stops_ = false;  // guarded by mutex_
  std::unique_ptr<device::Queue> default_queue_;
  std::thread thread_;
};

/// A queue of the library, or a stream of the caller. The handle is the address of this object.
class DeviceDouble::Queue final : public device::Queue {
 public:
  explicit Queue(DeviceDouble& device) : device_(device), state_(std::make_shared<State>()) {
    const std::lock_guard lock(device.mutex_);
    device.states_.push_back(state_);
  }

  void follow(void* stream) override { push_wait(*this, device_.queue_of(stream).place()); }
  void copy_to_host(void* to, const void* from, std::size_t bytes) override {
    std::memset(to, 0xEE, bytes);
    device_.push(state_, {[&device = device_] { return device.copies_to_host > 0; },
                          [&device = device_, to, source = device_.at(from), bytes] {
                            --device.copies_to_host;
                            std::memcpy(to, source, bytes);
                          }});
  }
  void copy_to_device(void* to, const void* from, std::size_t bytes) override {
    enqueue([&device = device_, target = device_.at(to), from, bytes] {
      std::memcpy(target, from, bytes);
      ++device.copies_to_device;
    });
  }
  void write(device::Word* word, device::Word value) override {
    enqueue([word, value] { __atomic_store_n(word, value, __ATOMIC_RELEASE); });
  }
  void await(const device::Word* word, device::Word value) override {
    device_.push(state_, {[word, value] { return device::reached(word, value); }, [] {}});
  }
  void mark() override { mark_ = place(); }
  void lead(void* stream) override { push_wait(device_.queue_of(stream), mark_); }

  void* handle() override { return this; }

  /// Enqueues any action, as a caller's own work on its stream.
  void enqueue(std::function<void()> act) { device_.push(state_, {{}, std::move(act)}); }
  /// Blocks the queue until `open` is set.
  void hold(std::shared_ptr<std::atomic<bool>> open) {
    device_.push(state_, {[open] { return open->load(); }, [] {}});
  }
  /// Blocks the host until the queue has drained.
  void finish() {
    const auto here = place();
    while (!here->load()) std::this_thread::yield();
  }
  void capture(bool on) { state_->captures = on; }
  bool captures() const { return state_->captures; }

 private:
  using Place = std::shared_ptr<std::atomic<bool>>;

  Place place() {
    auto passed = std::make_shared<std::atomic<bool>>(false);
    enqueue([passed] { passed->store(true); });
    return passed;
  }
  static void push_wait(Queue& queue, Place passed) {
    queue.device_.push(queue.state_, {[passed] { return passed->load(); }, [] {}});
  }

  DeviceDouble& device_;
  const std::shared_ptr<State> state_;
  Place mark_;

  friend class DeviceDouble;
};

inline std::unique_ptr<device::Queue> DeviceDouble::make_queue() {
  if (refuses_queues) throw Error("the double makes no queue");
  return std::make_unique<Queue>(*this);
}

inline DeviceDouble::Queue& DeviceDouble::queue_of(void* stream) const {
  return *static_cast<Queue*>(stream ? stream : default_queue_.get());
}

inline bool DeviceDouble::is_capturing(void* stream) const { return queue_of(stream).captures(); }

}  // namespace mccl::testing
