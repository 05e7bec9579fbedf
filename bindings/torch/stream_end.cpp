#include "stream_end.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace mccl_torch {
namespace {

const c10::impl::DeviceGuardImplInterface& device_calls(c10::Device device) {
  return *c10::impl::getDeviceGuardImpl(device.type());
}

}  // namespace

c10::Stream current_stream(c10::Device device) { return device_calls(device).getStream(device); }

void* handle_of(const c10::Stream& stream) {
  return device_calls(stream.device()).getStreamNativeHandle(stream);
}

void finish_current_stream(c10::Device device) {
  const auto& calls = device_calls(device);
  calls.synchronizeStream(calls.getStream(device));
}

c10::Stream EndStreams::stream(c10::Device device, bool in_order) {
  const auto& calls = device_calls(device);
  if (!in_order) return calls.getStreamFromGlobalPool(device);
  const std::lock_guard lock(mutex_);
  for (const c10::Stream& stream : streams_) {
    if (stream.device() == device) return stream;
  }
  streams_.push_back(calls.getStreamFromGlobalPool(device));
  return streams_.back();
}

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
      // Their memory is of another stream, which may get it back before this one has come so far.
      for (const at::Tensor& tensor : {to, from}) {
        calls.recordDataPtrOnStream(tensor.storage().data_ptr(), stream_);
      }
    }
  }
  if (is_own_) return;
  const std::lock_guard lock(mutex_);
  event_.record(stream_);
  marked_ = true;
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
