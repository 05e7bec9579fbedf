// The point at which a call on device memory ends, for which streams can wait. Uses torch's generic
// device interface, so that the extension needs no CUDA headers.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "mccl/work.h"

namespace mccl_torch {

/// The stream on `device` in which the caller currently runs kernels.
c10::Stream current_stream(c10::Device device);
/// The native handle of the stream, as the engine needs it.
void* handle_of(const c10::Stream& stream);
/// True if the stream's owner may destroy it. torch's own streams are never destroyed.
bool may_go(const c10::Stream& stream);
/// Blocks until the caller's current stream on `device` has finished its work.
void finish_current_stream(c10::Device device);
bool current_stream_is_done(c10::Device device);

/// Holds one stream of MCCL per device. The stream waits for the group's collectives in their
/// order. Work that must run after a collective waits for this stream.
class EndStreams {
 public:
  ~EndStreams();
  /// The group's stream on `device`, created on first use. Thread-safe.
  c10::Stream in_order(c10::Device device);

 private:
  std::mutex mutex_;
  std::vector<c10::Stream> streams_;  // guarded by mutex_
};

/// A point in a stream after a call and the copies of its results. In a stream of MCCL an event
/// marks the point. In the caller's stream the point is marked only when another stream first waits
/// for it, which is rare. The waiting stream then also waits for work that was enqueued in the
/// caller's stream in the meantime.
class StreamEnd {
 public:
  /// Pairs of destination and source.
  using Copies = std::vector<std::pair<at::Tensor, at::Tensor>>;
  /// Owner of the stream: the caller, the group (for its collectives), or this StreamEnd alone.
  enum class Place { callers, in_order, alone };

  StreamEnd(c10::Stream stream, Place place)
      : stream_(stream), place_(place), event_(stream.device_type()) {}
  /// Uses a stream of its own, in which no other call ends, so that messages do not wait for each
  /// other.
  explicit StreamEnd(c10::Device device);

  /// Makes the stream wait for the call and its `parts`, and then run `copies`. The host does not
  /// wait.
  void follow(const mccl::Work& work, const std::vector<const StreamEnd*>& parts,
              const Copies& copies);
  /// Makes later work in the caller's current stream run after the call.
  void hold_current_stream() const;

  c10::Stream stream() const { return stream_; }
  /// Releases the stream if it belongs to this end alone. Called when the call has succeeded.
  void let_go();
  /// Marks the point now if the stream may be destroyed later.
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
