#include "engine/collectives/compute.h"

#include <cstring>

#include "base/clock.h"
#include "kernels/copy.h"
#include "kernels/reduce.h"

namespace mccl::engine {
namespace {

/// Returns the operation that combines two elements. For avg and premul_sum, this operation is a
/// sum; the division and the factor are applied elsewhere.
ReduceKind arithmetic(ReduceKind kind) {
  return kind == ReduceKind::avg || kind == ReduceKind::premul_sum ? ReduceKind::sum : kind;
}

void reduce_two(const Task& task, const void* first, const void* second, void* dst,
                std::size_t count) {
  const DType dtype = task.call.dtype;
  const ReduceKind kind = arithmetic(task.call.kind);
  if (task.unit && task.unit->reduce(dtype, kind, first, second, dst, count)) return;
  kernels::reduce(dtype, kind, first, second, dst, count);
}

}  // namespace

void copy_to_result(const Task& task, std::byte* dst, const std::byte* src, std::size_t bytes) {
  if (task.in_place || task.out.bytes() < kernels::kLargeResultBytes) {
    std::memcpy(dst, src, bytes);
  } else {
    kernels::copy_past_cache(dst, src, bytes);
  }
}

void copy_input_to_output(Task& task, std::byte* dst, const std::byte* src, std::size_t bytes) {
  const ScopedTimer timer(task.reduce_s, bytes >= kTimedBytes);
  copy_to_result(task, dst, src, bytes);
}

void copy_anywhere(Task& task, std::byte* dst, const std::byte* src, std::size_t bytes) {
  const ScopedTimer timer(task.reduce_s, bytes >= kTimedBytes);
  std::memmove(dst, src, bytes);
}

void reduce_pair(Task& task, const void* first, const void* second, void* dst, std::size_t bytes) {
  const ScopedTimer timer(task.reduce_s, bytes >= kTimedBytes);
  reduce_two(task, first, second, dst, bytes / size_of(task.call.dtype));
}

void fold_operands(Task& task, std::span<const void* const> operands, void* dst, std::size_t count,
                   bool completes, int ranks) {
  const ScopedTimer timer(task.reduce_s, count * size_of(task.call.dtype) >= kTimedBytes);
  const ReduceKind kind = task.call.kind;
  const bool averages = completes && kind == ReduceKind::avg;
  const bool at_once = averages && operands.size() == static_cast<std::size_t>(ranks);
  if (operands.size() == 2 && !at_once) {
    reduce_two(task, operands[0], operands[1], dst, count);
  } else {
    kernels::fold(task.call.dtype, at_once ? ReduceKind::avg : arithmetic(kind), operands, dst,
                  count);
  }
  if (averages && !at_once) kernels::divide(task.call.dtype, dst, count, ranks);
}

void divide_average(Task& task, void* dst, std::size_t count, int ranks) {
  if (task.call.kind != ReduceKind::avg) return;
  const ScopedTimer timer(task.reduce_s, count * size_of(task.call.dtype) >= kTimedBytes);
  kernels::divide(task.call.dtype, dst, count, ranks);
}

}  // namespace mccl::engine
