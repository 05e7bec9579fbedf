// What the steps of a call compute, on memory of the host: moving, adding up, dividing. Each is
// timed where it takes longer than reading the clock. Memory of another device gets such a file of
// its own.
#pragma once

#include <cstddef>
#include <span>

#include "engine/calls/operation.h"

namespace mccl::engine {

/// Reading the clock would take longer than copying, or adding up, less than this.
inline constexpr std::size_t kTimedBytes = 4096;

/// dst = src, which do not overlap, where `dst` is in the task's output. Large results go past the
/// cache, where nobody looks at them soon.
void copy_to_result(const Task& task, std::byte* dst, const std::byte* src, std::size_t bytes);

/// The task's copy from its input to its output, or from anywhere to anywhere, which may overlap.
void copy_input_to_output(Task& task, std::byte* dst, const std::byte* src, std::size_t bytes);
void copy_anywhere(Task& task, std::byte* dst, const std::byte* src, std::size_t bytes);

/// dst = first op second, all of `bytes` bytes; dst may be one of the two.
void reduce_pair(Task& task, const void* first, const void* second, void* dst, std::size_t bytes);

/// dst = op over the operands in their order, each of `count` elements; dst may be one of them.
/// `completes`: the result is the whole group's of so many ranks, and an average is divided by
/// that.
void fold_operands(Task& task, std::span<const void* const> operands, void* dst, std::size_t count,
                   bool completes, int ranks);

/// dst, which holds the sum of all ranks, becomes their average, if that is what was called.
void divide_average(Task& task, void* dst, std::size_t count, int ranks);

}  // namespace mccl::engine
