// The Work of a call that is over for the host when torch gets it.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Stream.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "stream_end.h"
#include "torch/csrc/distributed/c10d/Work.hpp"

namespace mccl_torch {

/// Work of a successful call that the caller waits for and that left the host nothing to do: its
/// results are in the caller's tensors or, on a device, will be when the caller's stream gets
/// there. Most callers never use this Work, so the object is small and does nothing until it is
/// used.
class EndedWork final : public c10d::Work {
 public:
  /// `stream` is the caller's stream; std::nullopt for a call on host memory.
  EndedWork(int rank, c10d::OpType type, std::uint64_t sequence, std::optional<c10::Stream> stream,
            std::vector<at::Tensor> outputs, std::chrono::steady_clock::time_point started);

  bool isCompleted() override { return true; }
  std::vector<at::Tensor> result() override { return outputs_; }
  /// If the current stream is not the call's stream, makes it wait for the call. The host does not
  /// wait.
  void synchronize() override {
    if (end_) end_->hold_current_stream();
  }
  bool wait(std::chrono::milliseconds timeout) override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  float getDuration() const override;
  std::uint64_t getSequencenumber() const override { return sequence_; }

 private:
  const std::uint64_t sequence_;
  std::optional<StreamEnd> end_;  ///< Empty for a call on host memory.
  const std::vector<at::Tensor> outputs_;
  const std::chrono::steady_clock::time_point started_;
  const std::chrono::steady_clock::time_point ended_ = std::chrono::steady_clock::now();
};

}  // namespace mccl_torch
