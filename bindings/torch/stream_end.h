// The end of a call on a device's memory as streams see it. Written for torch's devices at large,
// by its interface for them, so that the extension needs no headers of CUDA.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "mccl/work.h"

namespace mccl_torch {

/// Of the caller, on `device`: what it runs kernels on.
c10::Stream current_stream(c10::Device device);
/// As the engine takes it.
void* handle_of(const c10::Stream& stream);
/// Until all is done that the caller's stream on `device` was given.
void finish_current_stream(c10::Device device);

/// The streams of a group on which its calls end, one for the collectives of each device, so that
/// they end in their order. Messages may end in any order, and take streams of torch's pool.
class EndStreams {
 public:
  c10::Stream stream(c10::Device device, bool in_order);

 private:
  std::mutex mutex_;
  std::vector<c10::Stream> streams_;  // guarded by mutex_
};

/// A place in a stream behind the call and the copies that its results need. In a stream of ours an
/// event marks it. In the caller's own it is marked when somebody else first waits for it: mostly
/// nobody does, and what the stream was given meanwhile is waited for, too.
class StreamEnd {
 public:
  using Copies = std::vector<std::pair<at::Tensor, at::Tensor>>;  ///< To, from.

  StreamEnd(c10::Stream stream, bool is_own)
      : stream_(stream), is_own_(is_own), event_(stream.device_type()) {}

  /// Has the stream wait for the call, and for `parts` of it, and make the copies. The host goes
  /// on.
  void follow(const mccl::Work& work, const std::vector<const StreamEnd*>& parts,
              const Copies& copies);
  /// What the caller's stream is given from now on runs after the call.
  void hold_current_stream() const;

  c10::Stream stream() const { return stream_; }

 private:
  void hold(const c10::Stream& stream) const;

  const c10::Stream stream_;
  const bool is_own_;
  mutable std::mutex mutex_;
  mutable bool marked_ = false;  // guarded by mutex_
  mutable c10::Event event_;     // guarded by mutex_
};

}  // namespace mccl_torch
