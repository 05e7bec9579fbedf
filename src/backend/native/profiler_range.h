// Shows the calls of this process in NVIDIA's profilers, through NVTX.
#pragma once

#include <atomic>

#include "engine/calls/request.h"

namespace mccl::native {

/// A range in the timeline of the current thread, with the name of a call and its size in bytes. It
/// begins when the object is constructed and ends when it is destroyed. Costs a nanosecond if the
/// process runs under no profiler, and in builds without the headers of NVTX.
class ProfilerRange {
 public:
  explicit ProfilerRange(const engine::Request& request) noexcept : is_shown_(may_be_shown()) {
    if (is_shown_) is_shown_ = begin(request);
  }
  ~ProfilerRange() {
    if (is_shown_) end();
  }
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;

 private:
  /// False once begin() has found no profiler.
  static bool may_be_shown() { return may_be_shown_.load(std::memory_order_relaxed); }
  /// Returns false if no profiler runs.
  static bool begin(const engine::Request& request) noexcept;
  static void end() noexcept;

  inline static std::atomic<bool> may_be_shown_{true};
  bool is_shown_;
};

}  // namespace mccl::native
