// Simulates the GPU of a Mac: buffers, a queue of the caller (like torch's stream), and the queue
// on which the library copies. Each queue has a thread. Work that the caller encodes runs at some
// time after it is committed.
//
// A buffer may be accessed only once a fence behind its last use has reported that it has passed.
// An earlier access by the host crashes. An earlier access by the library's queue is recorded as a
// violation. For buffers that the library allocated, copies are checked further: the target holds
// garbage until the copy is done, and a source that changes before it has been copied is a
// violation.
#pragma once

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/metal/driver.h"
#include "mccl/error.h"
#include "support/forbidden_memory.h"

namespace mccl::testing {

class MetalDouble final : public device::metal::MetalDriver,
                          public std::enable_shared_from_this<MetalDouble> {
 public:
  enum Queue { of_caller, of_library, kQueues };
  using Numbers = std::array<std::uint64_t, kQueues>;

  /// A buffer. Its address represents the id<MTLBuffer>.
  class Memory {
   public:
    enum Kind { of_gpu, of_both, of_library };
    Memory(std::size_t bytes, Kind kind) : memory_(bytes), kind_(kind) {}

    bool shared() const { return kind_ != of_gpu; }
    std::size_t bytes() const { return memory_.bytes(); }
    /// The address that actions of the queues use.
    std::byte* inside() const { return memory_.inside(); }

   private:
    friend class MetalDouble;
    enum Access { unknown, none, read, all };

    ForbiddenMemory memory_;
    const Kind kind_;
    Access access_ = unknown;  // guarded by the double's mutex, like the members below
    Numbers read_{};           ///< The last step of each queue that reads it.
    Numbers written_{};
  };
  using MemoryPtr = std::shared_ptr<Memory>;
  using Memories = std::vector<MemoryPtr>;

  explicit MetalDouble(unsigned seed = 1) : chance_(seed) {
    for (int queue = 0; queue < kQueues; ++queue) {
      threads_.emplace_back([this, queue] { run(queue); });
    }
  }
  ~MetalDouble() override { end(); }

  /// Joins the threads. Nothing runs on the simulated GPU afterwards. This must not be left to the
  /// destructor: a failed call may keep the object alive after its test, and later tests fork.
  void end() {
    {
      const std::lock_guard lock(mutex_);
      stops_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : std::exchange(threads_, {})) thread.join();
  }

  MemoryPtr make(std::size_t bytes, bool shared) {
    return make(bytes, shared ? Memory::of_both : Memory::of_gpu);
  }
  MemoryPtr make(std::size_t bytes, Memory::Kind kind) {
    auto memory = std::make_shared<Memory>(bytes, kind);
    const std::lock_guard lock(mutex_);
    allow(*memory);
    memories_[memory.get()] = memory;
    return memory;
  }
  /// Removes the buffer from memories_. Its memory lives as long as steps need it.
  void forget(void* buffer) {
    MemoryPtr last;
    const std::lock_guard lock(mutex_);
    const auto found = memories_.find(buffer);
    if (found == memories_.end()) return;
    last = found->second;
    memories_.erase(found);
    for (auto& pending : pending_) std::erase(pending, last);
  }
  MemoryPtr find(void* buffer) const {
    const std::lock_guard lock(mutex_);
    const auto found = memories_.find(buffer);
    return found == memories_.end() ? nullptr : found->second;
  }

  /// Encodes an action of the caller's queue, which runs after the next commit.
  void encode(const Memories& reads, const Memories& writes, std::function<void()> act) {
    const std::lock_guard lock(mutex_);
    note(of_caller, reads, writes);
    encoded_.push_back([reads, writes, act = std::move(act)] { act(); });  // keeps buffers alive
  }
  void commit() {
    {
      const std::lock_guard lock(mutex_);
      commit_locked();
    }
    changed_.notify_all();
  }
  /// Commits all encoded actions and returns the number of the last one.
  std::uint64_t mark() {
    std::uint64_t number = 0;
    {
      const std::lock_guard lock(mutex_);
      commit_locked();
      number = given_[of_caller];
    }
    changed_.notify_all();
    return number;
  }
  /// True if the caller's queue has passed mark `number`. From then on the host may touch memory
  /// that steps before the mark used.
  bool passed(std::uint64_t number) { return passed(of_caller, number); }
  void finish() {
    const std::uint64_t here = mark();
    while (!passed(here)) std::this_thread::yield();
  }
  std::shared_ptr<Fence> fence() { return make_fence(of_caller, mark()); }
  /// hold(true) stops committed steps from running until hold(false).
  void hold(bool held) {
    {
      const std::lock_guard lock(mutex_);
      held_ = held;
    }
    changed_.notify_all();
  }

  std::vector<std::string> violations() const {
    const std::lock_guard lock(mutex_);
    return violations_;
  }
  void record(std::string what) {
    const std::lock_guard lock(mutex_);
    violations_.push_back(std::move(what));
  }
  std::uint64_t copies() const { return copies_; }
  /// Lets `copies` more copies succeed. The fence of the copy after them reports a failure.
  void fail_copy_after(int copies) { copies_left_ = copies; }
  /// Sets whether later calls of copy() throw.
  void break_copies(bool broken) { broken_ = broken; }

  // The functions below implement the interface that the library uses.
  const std::string& name() const override { return name_; }
  std::byte* contents(void* buffer) override {
    const MemoryPtr memory = known(buffer);
    return memory->shared() ? memory->memory_.outside() : nullptr;
  }
  std::uintptr_t address(void* buffer) override {
    return reinterpret_cast<std::uintptr_t>(known(buffer)->memory_.outside());
  }
  std::size_t length(void* buffer) override { return known(buffer)->bytes(); }
  void* allocate(std::size_t bytes) override { return make(bytes, Memory::of_library).get(); }
  /// Small, so that calls in tests are split into pieces.
  std::size_t least_piece() const override { return 64; }
  void free(void* buffer) noexcept override { forget(buffer); }
  /// Runs the kernel of a given name. Set by tests that use kernels.
  using RunKernel =
      std::function<void(const std::string& name, const std::uint16_t* a, const std::uint16_t* b,
                         std::uint16_t* out, std::uint32_t count)>;
  RunKernel run_kernel;
  device::metal::KernelOptions loaded;  ///< The options of the last load_kernels().
  std::atomic<int> kernels_run{0};

  std::shared_ptr<device::metal::Kernels> load_kernels(
      const device::metal::KernelOptions& options) override {
    loaded = options;
    return std::make_shared<KernelsOfDouble>(shared_from_this());
  }
  std::shared_ptr<Fence> copy(std::span<const MetalCopy> copies) override {
    if (broken_) throw Error("Metal: a copy failed: the GPU was told to");
    std::uint64_t number = 0;
    {
      const std::lock_guard lock(mutex_);
      for (const MetalCopy& one : copies) {
        const MemoryPtr from = memories_.at(one.from.buffer);
        const MemoryPtr to = memories_.at(one.to.buffer);
        if (written(*from, of_caller)) violate("the library copies from a buffer", "is written");
        if (written(*to, of_caller) || read(*to, of_caller))
          violate("the library copies to a buffer", "is used");
        // If an earlier step of the library's queue still has to write the source, a change of the
        // source is no error.
        const bool settled = from->written_[of_library] <= done_[of_library];
        note(of_library, {from}, {to});
        push_copy(*from, *to, one, settled, {from, to});
        ++copies_;
      }
      number = given_[of_library];
    }
    changed_.notify_all();
    if (--copies_left_ == -1) return std::make_shared<Failing>();
    return make_fence(of_library, number);
  }

 private:
  class Failing final : public Fence {
   public:
    bool passed() override { throw Error("Metal: a copy failed: the GPU was told to"); }
  };
  class Passing final : public Fence {
   public:
    Passing(std::shared_ptr<MetalDouble> gpu, Queue queue, std::uint64_t number)
        : gpu_(std::move(gpu)), queue_(queue), number_(number) {}
    bool passed() override { return gpu_->passed(queue_, number_); }

   private:
    const std::shared_ptr<MetalDouble> gpu_;
    const Queue queue_;
    const std::uint64_t number_;
  };

  class KernelsOfDouble final : public device::metal::Kernels {
   public:
    explicit KernelsOfDouble(std::shared_ptr<MetalDouble> gpu) : gpu_(std::move(gpu)) {}
    std::shared_ptr<Fence> run(const device::metal::KernelCall& call) override {
      return gpu_->run(call);
    }

   private:
    const std::shared_ptr<MetalDouble> gpu_;
  };

  std::shared_ptr<Fence> run(const device::metal::KernelCall& call) {
    std::uint64_t number = 0;
    {
      const std::lock_guard lock(mutex_);
      const MemoryPtr a = memories_.at(call.a.buffer);
      const MemoryPtr b = memories_.at(call.b.buffer);
      const MemoryPtr out = memories_.at(call.out.buffer);
      note(of_library, {a, b}, {out});
      const auto at = [](const MemoryPtr& memory, const MetalPlace& place) {
        return reinterpret_cast<std::uint16_t*>(memory->inside() + place.offset);
      };
      steps_[of_library].push_back([=, this, kept = Memories{a, b, out}] {
        run_kernel(call.name, at(a, call.a), at(b, call.b), at(out, call.out), call.count);
        ++kernels_run;
      });
      number = given_[of_library];
    }
    changed_.notify_all();
    return make_fence(of_library, number);
  }

  std::shared_ptr<Fence> make_fence(Queue queue, std::uint64_t number) {
    return std::make_shared<Passing>(shared_from_this(), queue, number);
  }

  MemoryPtr known(void* buffer) const {
    const MemoryPtr memory = find(buffer);
    if (!memory) throw Error("a Metal buffer that is not there any more");
    return memory;
  }

  void violate(const char* what, const char* how) {
    violations_.push_back(
        fmt::format("{} that {} on the other queue before its fence was queried "
                    "and had passed",
                    what, how));
  }
  bool written(const Memory& memory, int queue) const {
    return memory.written_[queue] > seen_[queue];
  }
  bool read(const Memory& memory, int queue) const { return memory.read_[queue] > seen_[queue]; }

  void push_copy(const Memory& from, const Memory& to, const MetalCopy& one, bool settled,
                 Memories kept) {
    const std::byte* const source = from.inside() + one.from.offset;
    std::byte* const target = to.inside() + one.to.offset;
    std::vector<std::byte> before;
    if (settled && from.kind_ == Memory::of_library) before.assign(source, source + one.bytes);
    if (to.kind_ == Memory::of_library) std::memset(target, 0xEE, one.bytes);
    steps_[of_library].push_back([=, this, kept = std::move(kept), before = std::move(before)] {
      if (!before.empty() && std::memcmp(before.data(), source, before.size()) != 0)
        record("the host writes memory that is being copied to the device");
      std::memcpy(target, source, one.bytes);
    });
  }

  /// Gives the step a number. Until the step has passed, the host may not access the memory it
  /// uses.
  void note(Queue queue, const Memories& reads, const Memories& writes) {
    const std::uint64_t number = ++given_[queue];
    const int other = queue == of_caller ? of_library : of_caller;
    for (const MemoryPtr& memory : reads) {
      if (queue == of_caller && written(*memory, other))
        violate("the caller reads a buffer", "is written");
      memory->read_[queue] = number;
    }
    for (const MemoryPtr& memory : writes) {
      if (queue == of_caller && (written(*memory, other) || read(*memory, other)))
        violate("the caller writes a buffer", "is used");
      memory->written_[queue] = number;
    }
    for (const Memories* const list : {&reads, &writes}) {
      for (const MemoryPtr& memory : *list) {
        pending_[queue].push_back(memory);
        allow(*memory);
      }
    }
  }

  /// Sets the host's access rights to the memory, according to the steps that may still use it.
  void allow(Memory& memory) {
    Memory::Access access = memory.shared() ? Memory::all : Memory::none;
    const int queues = memory.kind_ == Memory::of_library ? 0 : kQueues;
    for (int queue = 0; queue < queues && access != Memory::none; ++queue) {
      if (written(memory, queue))
        access = Memory::none;
      else if (read(memory, queue))
        access = Memory::read;
    }
    if (access == memory.access_) return;
    memory.access_ = access;
    const int rights = access == Memory::all    ? PROT_READ | PROT_WRITE
                       : access == Memory::read ? PROT_READ
                                                : PROT_NONE;
    ::mprotect(memory.memory_.outside(), memory.bytes(), rights);
  }

  void commit_locked() {
    for (auto& act : encoded_) steps_[of_caller].push_back(std::move(act));
    encoded_.clear();
  }

  bool passed(Queue queue, std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    if (done_[queue] < number) return false;
    if (seen_[queue] >= number) return true;
    seen_[queue] = number;
    std::erase_if(pending_[queue], [&](const MemoryPtr& memory) {
      allow(*memory);
      return !written(*memory, queue) && !read(*memory, queue);
    });
    return true;
  }

  /// Runs the steps of one queue, some of them after a random delay.
  void run(int queue) {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stops_ || (!steps_[queue].empty() && !held_); });
      if (stops_) return;
      auto act = std::move(steps_[queue].front());
      steps_[queue].pop_front();
      const std::chrono::microseconds pause(chance_() % 8 == 0 ? chance_() % 400 : 0);
      lock.unlock();
      if (pause.count() > 0) std::this_thread::sleep_for(pause);
      act();
      lock.lock();
      ++done_[queue];
      lock.unlock();
      act = nullptr;  // may release buffers
      lock.lock();
    }
  }

  const std::string name_ = "a double";
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<void*, MemoryPtr> memories_;                           // guarded by mutex_
  std::vector<std::function<void()>> encoded_;                    // guarded by mutex_
  std::array<std::deque<std::function<void()>>, kQueues> steps_;  // guarded by mutex_
  std::array<Memories, kQueues> pending_;                         // guarded by mutex_
  Numbers given_{};                                               // guarded by mutex_
  Numbers done_{};                                                // guarded by mutex_
  Numbers seen_{};      ///< The last step of each queue seen to have passed; guarded by mutex_.
  bool held_ = false;   // guarded by mutex_
  bool stops_ = false;  // guarded by mutex_
  std::minstd_rand chance_;              // guarded by mutex_
  std::vector<std::string> violations_;  // guarded by mutex_
  std::atomic<std::uint64_t> copies_{0};
  std::atomic<bool> broken_{false};
  std::atomic<int> copies_left_{1 << 30};
  std::vector<std::thread> threads_;
};

}  // namespace mccl::testing
