// Where a copy ends up: in the caller's result, or in memory of ours.
#pragma once

#include <cstddef>
#include <cstring>

#include "engine/calls/operation.h"
#include "kernels/copy.h"

namespace mccl::engine {

/// Reading the clock would take longer than copying, or adding up, less than this.
inline constexpr std::size_t kTimedBytes = 4096;

/// A result of at least so many bytes is in nobody's cache by the time it is whole.
inline constexpr std::size_t kLargeResultBytes = std::size_t{8} << 20;

/// dst = src, which do not overlap, where `dst` is in the task's output.
inline void copy_to_result(const Task& task, std::byte* dst, const std::byte* src, std::size_t n) {
  // In place, what is written has just been read and is in the cache.
  if (task.in_place || task.output.bytes() < kLargeResultBytes) {
    std::memcpy(dst, src, n);
  } else {
    kernels::copy_past_cache(dst, src, n);
  }
}

}  // namespace mccl::engine
