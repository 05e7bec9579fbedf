#include "stream_end.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <utility>

#include "mccl/device_memory.h"

namespace mccl_torch {
namespace {

const c10::impl::DeviceGuardImplInterface& device_calls(c10::Device device) {
  return *c10::impl::getDeviceGuardImpl(device.type());
}

/// Pool of streams that no caller can hold. torch's pool has 32 streams, and `torch.cuda.Stream()`
/// returns the same streams again. If MCCL used a stream of that pool, the caller might use it too,
/// and the caller's work would wait for a peer.
class OwnStreams {
 public:
  /// Returns an unused stream; creates one if all are in use.
  c10::Stream take(c10::Device device) {
    {
      const std::lock_guard lock(mutex_);
      const auto unused =
          std::find_if(unused_.begin(), unused_.end(),
                       [device](const auto& stream) { return stream.device() == device; });
      if (unused != unused_.end()) {
        const c10::Stream stream = *unused;
        unused_.erase(unused);
        return stream;
      }
    }
    return make(device);
  }

  void give_back(const c10::Stream& stream) {
    const std::lock_guard lock(mutex_);
    unused_.push_back(stream);
  }

 private:
  /// Creates a stream that is never destroyed: when a tensor is freed, torch's allocator records
  /// events on the streams that used it. The id of an external stream is its handle.
  static c10::Stream make(c10::Device device) {
    void* const handle = mccl::make_stream({mccl::DeviceKind::cuda, device.index()});
    const c10::Stream stream(c10::Stream::UNSAFE, device, reinterpret_cast<c10::StreamId>(handle));
    TORCH_INTERNAL_ASSERT(handle_of(stream) == handle,
                          "the id of an external stream of torch is not its handle");
    return stream;
  }

  std::mutex mutex_;
  std::vector<c10::Stream> unused_;  // guarded by mutex_
};

OwnStreams& own_streams() {
  static auto* const streams = new OwnStreams;
  return *streams;
}

}  // namespace

c10::Stream current_stream(c10::Device device) { return device_calls(device).getStream(device); }

void* handle_of(const c10::Stream& stream) {
  return device_calls(stream.device()).getStreamNativeHandle(stream);
}

/// True for an external stream: torch uses the handle of such a stream as its id. The default
/// stream is excluded, although its id and its handle are both 0.
bool may_go(const c10::Stream& stream) {
  return stream.id() != 0 && handle_of(stream) == reinterpret_cast<void*>(stream.id());
}

void finish_current_stream(c10::Device device) {
  const auto& calls = device_calls(device);
  calls.synchronizeStream(calls.getStream(device));
}

bool current_stream_is_done(c10::Device device) {
  const auto& calls = device_calls(device);
  return calls.queryStream(calls.getStream(device));
}

EndStreams::~EndStreams() {
  for (const c10::Stream& stream : streams_) {
    try {
      if (device_calls(stream.device()).queryStream(stream)) own_streams().give_back(stream);
    } catch (const std::exception&) {
      // The query fails once the driver has shut down. Such a stream is not reused.
    }
  }
}

c10::Stream EndStreams::in_order(c10::Device device) {
  const std::lock_guard lock(mutex_);
  for (const c10::Stream& stream : streams_) {
    if (stream.device() == device) return stream;
  }
  streams_.push_back(own_streams().take(device));
  return streams_.back();
}

StreamEnd::StreamEnd(c10::Device device)
    : stream_(own_streams().take(device)), place_(Place::alone), event_(device.type()) {}

void StreamEnd::follow(const mccl::Work& work, const std::vector<const StreamEnd*>& parts,
                       const Copies& copies) {
  const auto& calls = device_calls(stream_.device());
  work.wait_on_stream(handle_of(stream_));
  for (const StreamEnd* const part : parts) part->hold(stream_);
  if (!copies.empty()) {
    const c10::StreamGuard guard(stream_);
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    for (const auto& [to, from] : copies) {
      to.copy_(from);
      // The tensors' memory belongs to another stream, which might reuse it before this stream has
      // finished the copy.
      for (const at::Tensor& tensor : {to, from}) {
        calls.recordDataPtrOnStream(tensor.storage().data_ptr(), stream_);
      }
    }
  }
  if (place_ == Place::callers) return mark_if_stream_may_go();
  const std::lock_guard lock(mutex_);
  event_.record(stream_);
  marked_ = true;
}

void StreamEnd::mark_if_stream_may_go() const {
  if (!may_go(stream_)) return;
  const std::lock_guard lock(mutex_);
  event_.record(stream_);
  marked_ = true;
}

void StreamEnd::let_go() {
  if (std::exchange(place_, Place::in_order) == Place::alone) own_streams().give_back(stream_);
}

void StreamEnd::hold(const c10::Stream& stream) const {
  if (stream == stream_) return;
  const std::lock_guard lock(mutex_);
  if (!marked_) event_.record(stream_);
  marked_ = true;
  event_.block(stream);
}

void StreamEnd::hold_current_stream() const { hold(current_stream(stream_.device())); }

}  // namespace mccl_torch
