// Shows the calls of this process in NVIDIA's profilers, through NVTX.
#pragma once

#include "engine/calls/request.h"

namespace mccl::native {

/// A range in the timeline of the current thread, with the name of a call and its size in bytes.
/// The range begins when the object is constructed, and ends when it is destroyed. Costs a few
/// nanoseconds if the process runs under no profiler, and nothing in builds without the headers of
/// NVTX.
class ProfilerRange {
 public:
  explicit ProfilerRange(const engine::Request& request) noexcept;
  ~ProfilerRange();
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;

 private:
  [[maybe_unused]] const bool is_shown_;
};

}  // namespace mccl::native
