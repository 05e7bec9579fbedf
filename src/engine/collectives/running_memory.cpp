#include "engine/collectives/running_memory.h"

#include <algorithm>

namespace mccl::engine {

using schedule::Region;
using schedule::Space;
using schedule::Step;

void RunningMemory::begin(const Task& task, const schedule::Schedule& schedule) {
  conveyor_ = task.conveyor;
  if (!conveyor_) return;
  in_place_ = task.in_place || task.call.collective == Collective::broadcast;
  element_bytes_ = size_of(task.call.dtype);
  input_bytes_ = task.in.bytes();
  output_bytes_ = task.out.bytes();
  piece_ = std::max<std::size_t>(1, conveyor_->piece_of_output());
  done_ = 0;
  writers_.assign((output_bytes_ + piece_ - 1) / piece_, 0);
  for (const Step& step : schedule.steps) {
    for_each_piece(step.dst, [this](std::size_t piece) { ++writers_[piece]; });
  }
  deliver();
}

/// If the call is in place, `input` and `output` are the same memory, so a region of the output is
/// input, too.
bool RunningMemory::is_input(const Region& region) const {
  return region.count > 0 &&
         (region.space == Space::input || (in_place_ && region.space == Space::output));
}

bool RunningMemory::is_output(const Region& region) const {
  return region.count > 0 &&
         (region.space == Space::output || (in_place_ && region.space == Space::input));
}

std::size_t RunningMemory::end_of(const Region& region) const {
  return (region.offset + region.count) * element_bytes_;
}

/// End, in bytes, of the input that must arrive before the step may run. If the call is in place,
/// this includes memory that the step only writes: input that arrives later would overwrite the
/// result.
std::size_t RunningMemory::reach(const Step& step) const {
  std::size_t reach = 0;
  for (const Region* const region : {&step.src, &step.dst}) {
    const bool is_peers = region == &step.src && step.kind == schedule::StepKind::read;
    if (!is_peers && is_input(*region))
      reach = std::max(reach, std::min(end_of(*region), input_bytes_));
  }
  return reach;
}

template <typename Visit>
void RunningMemory::for_each_piece(const Region& region, const Visit& visit) {
  if (!is_output(region)) return;
  const std::size_t end = std::min(end_of(region), output_bytes_);
  for (std::size_t at = region.offset * element_bytes_ / piece_; at * piece_ < end; ++at) visit(at);
}

void RunningMemory::note(const Step& step) {
  bool done = false;
  for_each_piece(step.dst, [&](std::size_t piece) { done |= --writers_[piece] == 0; });
  if (done) deliver();
}

void RunningMemory::deliver() {
  const std::size_t before = done_;
  while (done_ < writers_.size() && writers_[done_] == 0) ++done_;
  if (done_ != before) conveyor_->deliver(std::min(done_ * piece_, output_bytes_));
}

}  // namespace mccl::engine
