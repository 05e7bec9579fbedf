// Arithmetic and copies of a call's steps, on host memory.
#pragma once

#include <cstddef>
#include <span>

#include "engine/calls/operation.h"

namespace mccl::engine {

/// Size in bytes of the smallest copy or reduction that is timed. A smaller operation takes less
/// time than reading the clock.
inline constexpr std::size_t kTimedBytes = 4096;

/// Copies `src` to `dst`, which is in the task's output. The two must not overlap. A large output
/// that is not in place is written past the cache, because the program does not read it soon.
void copy_to_result(const Task& task, std::byte* dst, const std::byte* src, std::size_t bytes);

/// Both functions copy `bytes` bytes. copy_input_to_output() copies the task's input to its output,
/// without overlap. copy_anywhere() accepts any two memory ranges, even overlapping ones.
void copy_input_to_output(Task& task, std::byte* dst, const std::byte* src, std::size_t bytes);
void copy_anywhere(Task& task, std::byte* dst, const std::byte* src, std::size_t bytes);

/// Reduces `first` and `second`, each of `bytes` bytes, and stores the result in `dst`, which may
/// be one of the two operands.
void reduce_pair(Task& task, const void* first, const void* second, void* dst, std::size_t bytes);

/// Reduces the operands, each of `count` elements, in their order and stores the result in `dst`,
/// which may be one of the operands. `completes`: the result includes the data of all `ranks`
/// ranks, so an average is divided by `ranks`.
void fold_operands(Task& task, std::span<const void* const> operands, void* dst, std::size_t count,
                   bool completes, int ranks);

/// If the call is an average, divides dst, the sum of all ranks, by the number of ranks.
void divide_average(Task& task, void* dst, std::size_t count, int ranks);

}  // namespace mccl::engine
