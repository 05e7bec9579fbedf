// A call on device memory that is complete in its caller's stream when it returns.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "stream_end.h"
#include "torch/csrc/distributed/c10d/Work.hpp"

namespace mccl_torch {

/// Work of a call whose caller waits immediately and for which the host has nothing left to do.
/// Most callers never use it, so the object is small and does nothing until it is used.
class StreamWork final : public c10d::Work {
 public:
  StreamWork(int rank, c10d::OpType type, std::uint64_t sequence, c10::Stream stream,
             std::vector<at::Tensor> outputs, std::chrono::steady_clock::time_point started);

  bool isCompleted() override { return true; }
  std::vector<at::Tensor> result() override { return outputs_; }
  /// Makes the current stream wait if it is not the call's stream; the host does not wait.
  void synchronize() override { end_.hold_current_stream(); }
  bool wait(std::chrono::milliseconds timeout) override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  float getDuration() const override;
  std::uint64_t getSequencenumber() const override { return sequence_; }

 private:
  const std::uint64_t sequence_;
  const StreamEnd end_;
  const std::vector<at::Tensor> outputs_;
  const std::chrono::steady_clock::time_point started_;
  const std::chrono::steady_clock::time_point ended_ = std::chrono::steady_clock::now();
};

}  // namespace mccl_torch
