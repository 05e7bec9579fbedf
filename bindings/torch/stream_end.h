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
/// Whether the stream's owner may destroy it. Streams of torch stay.
bool may_go(const c10::Stream& stream);
/// Until all is done that the caller's stream on `device` was given.
void finish_current_stream(c10::Device device);
/// Whether it is.
bool current_stream_is_done(c10::Device device);

/// The streams of a group on which its collectives end, one for each device, so that they end in
/// their order. They are MCCL's own.
class EndStreams {
 public:
  ~EndStreams();
  c10::Stream in_order(c10::Device device);

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
  /// Whose stream it is: the caller's, the group's for its collectives, or this end's alone.
  enum class Place { callers, in_order, alone };

  StreamEnd(c10::Stream stream, Place place)
      : stream_(stream), place_(place), event_(stream.device_type()) {}
  /// In a stream that no other call ends in, so that messages do not wait for each other.
  explicit StreamEnd(c10::Device device);

  /// Has the stream wait for the call, and for `parts` of it, and make the copies. The host goes
  /// on.
  void follow(const mccl::Work& work, const std::vector<const StreamEnd*>& parts,
              const Copies& copies);
  /// What the caller's stream is given from now on runs after the call.
  void hold_current_stream() const;

  c10::Stream stream() const { return stream_; }
  /// The call is over, and has not failed: another may end in a stream that was this end's alone.
  void let_go();
  /// Marks the place now where its stream may not be there later.
  void mark_if_stream_may_go() const;

 private:
  void hold(const c10::Stream& stream) const;

  const c10::Stream stream_;
  Place place_;
  mutable std::mutex mutex_;
  mutable bool marked_ = false;  // guarded by mutex_
  mutable c10::Event event_;     // guarded by mutex_
};

}  // namespace mccl_torch
