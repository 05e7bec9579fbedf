// Pinned host memory of this process, through which calls on GPU memory are staged.
#pragma once

#include <atomic>
#include <cstdint>

namespace mccl {

/// Counts the bytes of pinned host memory. One object per process, because GPUs belong to the
/// process and not to a group. Thread-safe.
class PinnedMemory {
 public:
  /// Records allocated memory, or freed memory if `bytes` is negative.
  void record(std::int64_t bytes) {
    const std::int64_t now = held_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    std::int64_t peak = peak_.load(std::memory_order_relaxed);
    while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
  }
  std::uint64_t bytes() const { return static_cast<std::uint64_t>(held_.load()); }
  std::uint64_t peak_bytes() const { return static_cast<std::uint64_t>(peak_.load()); }
  void reset_peak() { peak_.store(held_.load()); }

  /// Maximum number of unused bytes that are kept per GPU for later calls.
  std::uint64_t limit() const { return limit_.load(std::memory_order_relaxed); }
  void set_limit(std::uint64_t bytes) { limit_.store(bytes, std::memory_order_relaxed); }

 private:
  std::atomic<std::int64_t> held_{0};
  std::atomic<std::int64_t> peak_{0};
  std::atomic<std::uint64_t> limit_{std::uint64_t{1} << 30};
};

/// Returns the only PinnedMemory of this process.
inline PinnedMemory& pinned_memory() {
  static PinnedMemory instance;
  return instance;
}

}  // namespace mccl
