#include "ended_work.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <c10/core/StreamGuard.h>

#include <utility>

namespace mccl_torch {

EndedWork::EndedWork(int rank, c10d::OpType type, std::uint64_t sequence,
                     std::optional<c10::Stream> stream, std::vector<at::Tensor> outputs,
                     std::chrono::steady_clock::time_point started)
    : Work(rank, type), sequence_(sequence), outputs_(std::move(outputs)), started_(started) {
  completed_ = true;
  if (!stream) return;
  end_.emplace(*stream, StreamEnd::Place::callers);
  end_->mark_if_stream_may_go();
}

bool EndedWork::wait(std::chrono::milliseconds /*timeout*/) {
  synchronize();
  return true;
}

/// The host sees the future as complete immediately. A thread that reads its value makes its
/// current stream wait for the call.
c10::intrusive_ptr<c10::ivalue::Future> EndedWork::getFuture() {
  std::vector<c10::Device> devices;
  std::optional<c10::StreamGuard> guard;
  if (end_) {
    devices.push_back(end_->stream().device());
    guard.emplace(end_->stream());
  }
  auto future = c10::make_intrusive<c10::ivalue::Future>(
      c10::ListType::create(c10::TensorType::get()), std::move(devices));
  future->markCompleted(c10::IValue(outputs_));
  return future;
}

float EndedWork::getDuration() const {
  return std::chrono::duration<float, std::milli>(ended_ - started_).count();
}

}  // namespace mccl_torch
