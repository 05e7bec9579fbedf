// Runs GPU kernels of several ranks on the host. Every GPU thread is a coroutine. A scheduler runs
// one at a time and picks the next one at random whenever a thread waits, so blocks and ranks
// advance at very different speeds. A seed makes a run repeatable.
//
// Include this header before the kernels, and only in one source file.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <vector>

#define __device__
#define __forceinline__ inline
#define __noinline__ inline
#define __shared__ static

#include "kernels/cuda/ptx.cuh"

namespace mccl::testing {

struct Dimension {
  unsigned x;
};

/// One kernel in the stream of a rank.
struct KernelLaunch {
  unsigned blocks;
  unsigned threads;  ///< per block; a multiple of 32
  std::function<void()> kernel;
};

/// Runs the kernels of all ranks; those of one rank run one after the other.
class GpusOnHost {
 public:
  explicit GpusOnHost(unsigned seed) : chance_(seed) {}

  /// Throws std::runtime_error if the kernels do not end.
  void run(std::span<const std::vector<KernelLaunch>> streams) {
    current_ = this;
    for (const auto& stream : streams) ranks_.push_back({&stream, 0, 0});
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) start_next(rank);
    std::uint64_t steps = 0;
    while (!ready_.empty()) {
      if (++steps > kMostSteps) throw std::runtime_error("the kernels do not end");
      if (steps % kStepsOfOneSlow == 0) slow_ = chance_() % ranks_.size();
      std::size_t pick = chance_() % ready_.size();
      for (int again = 0; again < 16 && ready_[pick]->rank == slow_; ++again) {
        pick = chance_() % ready_.size();
      }
      running_ = ready_[pick].get();
      swapcontext(&scheduler_, &running_->context);
      if (!running_->is_done) continue;
      const std::size_t rank = running_->rank;
      std::swap(ready_[pick], ready_.back());
      ready_.pop_back();
      if (--ranks_[rank].threads == 0) start_next(rank);
    }
    current_ = nullptr;
  }

  struct Barrier {
    unsigned waiting = 0;
    unsigned passed = 0;
    std::array<std::byte, 32> values[32], results[32];  ///< One per thread of a warp.
  };
  struct Thread {
    ucontext_t context;
    std::unique_ptr<std::byte[]> stack;
    const KernelLaunch* launch;
    std::size_t rank;
    Dimension thread, block, grid, size;
    std::shared_ptr<Barrier> of_block, of_warp;
    bool is_done = false;
  };

  static Thread& running() { return *current_->running_; }
  static void yield() { swapcontext(&running().context, &current_->scheduler_); }
  /// The last thread calls `act` before all continue.
  template <typename Act>
  static void wait(Barrier& barrier, unsigned threads, const Act& act) {
    const unsigned passed = barrier.passed;
    if (++barrier.waiting == threads) {
      act();
      barrier.waiting = 0;
      ++barrier.passed;
    }
    while (barrier.passed == passed) yield();
  }
  static void wait(Barrier& barrier, unsigned threads) {
    wait(barrier, threads, [] {});
  }
  /// Waits until all threads of the warp have come here, and returns each(values), where `values`
  /// has the value of each. The last thread calls each() for all, so nothing happens in between.
  template <typename Value, typename Each>
  static auto together(const Value& own, const Each& each) {
    Barrier& warp = *running().of_warp;
    const unsigned lane = running().thread.x % 32;
    static_assert(sizeof(Value) <= sizeof(warp.values[0]));
    std::memcpy(&warp.values[lane], &own, sizeof(Value));
    using Result = decltype(each(own, &own, 0U));
    wait(warp, 32, [&] {
      Value values[32];
      for (int i = 0; i < 32; ++i) std::memcpy(&values[i], &warp.values[i], sizeof(Value));
      for (unsigned i = 0; i < 32; ++i) {
        const Result result = each(values[i], values, i);
        std::memcpy(&warp.results[i], &result, sizeof(Result));
      }
    });
    Result result;
    std::memcpy(&result, &warp.results[lane], sizeof(Result));
    wait(warp, 32);  // All have taken their results.
    return result;
  }

 private:
  static constexpr std::size_t kStackBytes = std::size_t{64} << 10;
  static constexpr std::uint64_t kMostSteps = 200'000'000;
  static constexpr std::uint64_t kStepsOfOneSlow = 3000;
  struct Rank {
    const std::vector<KernelLaunch>* stream;
    std::size_t next;
    unsigned threads;  ///< Number of running threads.
  };

  void start_next(std::size_t rank) {
    Rank& state = ranks_[rank];
    if (state.next == state.stream->size()) return;
    const KernelLaunch& launch = (*state.stream)[state.next++];
    state.threads = launch.blocks * launch.threads;
    for (unsigned block = 0; block < launch.blocks; ++block) {
      const auto of_block = std::make_shared<Barrier>();
      std::shared_ptr<Barrier> of_warp;
      for (unsigned index = 0; index < launch.threads; ++index) {
        if (index % 32 == 0) of_warp = std::make_shared<Barrier>();
        auto thread = std::make_unique<Thread>();
        thread->stack = std::make_unique_for_overwrite<std::byte[]>(kStackBytes);
        thread->launch = &launch;
        thread->rank = rank;
        thread->thread = {index};
        thread->block = {block};
        thread->grid = {launch.blocks};
        thread->size = {launch.threads};
        thread->of_block = of_block;
        thread->of_warp = of_warp;
        getcontext(&thread->context);
        thread->context.uc_stack.ss_sp = thread->stack.get();
        thread->context.uc_stack.ss_size = kStackBytes;
        thread->context.uc_link = &scheduler_;
        makecontext(&thread->context, &GpusOnHost::run_thread, 0);
        ready_.push_back(std::move(thread));
      }
    }
  }

  static void run_thread() {
    running().launch->kernel();
    running().is_done = true;
  }

  static inline GpusOnHost* current_ = nullptr;
  std::mt19937 chance_;
  std::size_t slow_ = 0;  ///< The rank that currently runs seldom.
  ucontext_t scheduler_{};
  std::vector<Rank> ranks_;
  std::vector<std::unique_ptr<Thread>> ready_;  ///< All threads that have not ended.
  Thread* running_ = nullptr;
};

}  // namespace mccl::testing

#define threadIdx (::mccl::testing::GpusOnHost::running().thread)
#define blockIdx (::mccl::testing::GpusOnHost::running().block)
#define blockDim (::mccl::testing::GpusOnHost::running().size)
#define gridDim (::mccl::testing::GpusOnHost::running().grid)

namespace mccl::kernels::cuda {
namespace {

using ::mccl::testing::GpusOnHost;

void __syncthreads() { GpusOnHost::wait(*GpusOnHost::running().of_block, blockDim.x); }

std::uint64_t __shfl_sync(unsigned, std::uint64_t value, int lane) {
  struct Asked {
    std::uint64_t value;
    int lane;
  };
  return GpusOnHost::together(Asked{value, lane}, [](const Asked& own, const Asked* all, unsigned) {
    return all[own.lane].value;
  });
}

bool __all_sync(unsigned, bool value) {
  return GpusOnHost::together(value, [](bool, const bool* all, unsigned) {
    return std::all_of(all, all + 32, [](bool each) { return each; });
  });
}

int __reduce_max_sync(unsigned, int value) {
  return GpusOnHost::together(
      value, [](int, const int* all, unsigned) { return *std::max_element(all, all + 32); });
}

std::uint64_t now_ns() { return 1; }  // No wait ever times out.

void store_release(std::uint32_t* to, std::uint32_t value) {
  GpusOnHost::yield();
  *to = value;
}

std::uint32_t load_acquire(const std::uint32_t* from) {
  GpusOnHost::yield();
  return *from;
}

void store_whole(std::byte* to, const Line& line) { std::memcpy(to, &line, sizeof(Line)); }

Line load_whole(const std::byte* from) {
  GpusOnHost::yield();
  Line line;
  std::memcpy(&line, from, sizeof(Line));
  return line;
}

void store_by_warp(std::byte* to, const Line& line) {
  struct Stored {
    std::byte* to;
    Line line;
  };
  GpusOnHost::together(Stored{to, line}, [](const Stored& own, const Stored*, unsigned) {
    std::memcpy(own.to, &own.line, sizeof(Line));
    return true;
  });
}

Line load_by_warp(const std::byte* from) {
  return GpusOnHost::together(from, [](const std::byte* own, const std::byte* const*, unsigned) {
    Line line;
    std::memcpy(&line, own, sizeof(Line));
    return line;
  });
}

}  // namespace
}  // namespace mccl::kernels::cuda
