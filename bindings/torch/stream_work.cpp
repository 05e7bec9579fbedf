#include "stream_work.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <c10/core/StreamGuard.h>

#include <utility>

namespace mccl_torch {

StreamWork::StreamWork(int rank, c10d::OpType type, std::uint64_t sequence, c10::Stream stream,
                       std::vector<at::Tensor> outputs,
                       std::chrono::steady_clock::time_point started)
    : Work(rank, type),
      sequence_(sequence),
      end_(stream, StreamEnd::Place::callers),
      outputs_(std::move(outputs)),
      started_(started) {
  completed_ = true;
  end_.mark_if_stream_may_go();
}

bool StreamWork::wait(std::chrono::milliseconds /*timeout*/) {
  end_.hold_current_stream();
  return true;
}

/// The future is complete for the host immediately. Reading its value makes a stream wait.
c10::intrusive_ptr<c10::ivalue::Future> StreamWork::getFuture() {
  const c10::Stream stream = end_.stream();
  auto future = c10::make_intrusive<c10::ivalue::Future>(
      c10::ListType::create(c10::TensorType::get()), std::vector<c10::Device>{stream.device()});
  const c10::StreamGuard guard(stream);
  future->markCompleted(c10::IValue(outputs_));
  return future;
}

float StreamWork::getDuration() const {
  return std::chrono::duration<float, std::milli>(ended_ - started_).count();
}

}  // namespace mccl_torch
