// The part of Executor for encoded sums: converts elements to blocks and back.
#include <fmt/format.h>

#include "base/clock.h"
#include "engine/collectives/compute.h"
#include "engine/collectives/executor.h"
#include "kernels/codec/codec.h"
#include "mccl/error.h"

namespace mccl::engine {

using schedule::Space;
using schedule::Step;
using schedule::StepKind;

void Executor::run_coded(const Step& step) {
  const Coding& coding = task_->call.coding;
  const DType dtype = task_->call.dtype;
  const std::size_t count = step.dst.count;
  const ScopedTimer timer(task_->reduce_s, count * element_bytes_ >= kTimedBytes);
  std::byte* const left =
      task_->left_out ? task_->left_out + step.element * element_bytes_ : nullptr;
  if (step.kind == StepKind::encode) {
    return kernels::encode(coding, Coded::contribution, dtype, readable(step.src), count,
                           writable(step.dst), left);
  }
  if (step.kind == StepKind::decode) {
    const bool good =
        kernels::decode(coding, Coded::sum, dtype, readable(step.src), count, writable(step.dst));
    if (!good) throw_undecodable(GroupRank(step.peer));
    return;
  }
  list_blocks(step);
  const int divisor = task_->call.kind == ReduceKind::avg ? channels_.size() : 1;
  const int wrong =
      step.dst.space == Space::sums
          ? kernels::fold_to_sum(coding, blocks_, count, divisor, writable(step.dst), dtype, left)
          : kernels::fold_to_elements(coding, blocks_, count, divisor, dtype, writable(step.dst));
  if (wrong >= 0) throw_undecodable(maker_of(step, wrong));
}

/// Lists the encoded contributions in rank order.
void Executor::list_blocks(const Step& step) {
  const std::size_t bytes = task_->call.coding.bytes(step.dst.count, Coded::contribution);
  const std::byte* const first = readable(step.src);
  blocks_.clear();
  for (std::size_t i = 0; i < step.operands; ++i) blocks_.push_back(first + i * bytes);
}

/// Returns the rank that encoded this operand: the sender of the last message into its memory, or
/// this rank if there was none.
GroupRank Executor::maker_of(const Step& fold, int operand) const {
  const std::size_t block = task_->call.coding.block();
  const std::size_t stride = (fold.dst.count + block - 1) / block * block;
  const schedule::Region place{
      Space::coded, fold.src.offset + static_cast<std::size_t>(operand) * stride, fold.dst.count};
  const Step* const first = plan_->schedule.steps.data();
  for (const Step* step = &fold; step != first; --step) {
    if (step[-1].kind == StepKind::recv && step[-1].dst == place) return GroupRank(step[-1].peer);
  }
  return channels_.rank();
}

void Executor::throw_undecodable(GroupRank maker) const {
  throw CorruptionError(
      fmt::format("rank {} sends invalid blocks of {}; its memory or the path from there is faulty "
                  "(MCCL_TRANSPORT_CRC=1 shows which)",
                  maker, name_of(task_->call.coding.codec)));
}

}  // namespace mccl::engine
