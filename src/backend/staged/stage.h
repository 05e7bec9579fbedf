// A call on a device's memory, made into one on host memory.
#pragma once

#include <memory>

#include "backend/request.h"
#include "device/depot.h"

namespace mccl::staged {

/// Whether any of the memory lies on a device.
inline bool on_device(const Request& request) {
  return request.in.device.kind != DeviceKind::cpu || request.out.device.kind != DeviceKind::cpu;
}

/// Holds the pinned memory of one call, and the passage that carries data to it and back. Not
/// thread-safe.
class Stage {
 public:
  /// Turns `request`, of `rank`, into one on pinned memory, and has the device bring the input
  /// there as soon as `stream` has come to this call. Throws InvalidArgument.
  Stage(Request& request, int rank, void* stream);
  /// Where the device's side has not ended, what it uses is not used again.
  ~Stage();

  bool arrived() const { return passage_->arrived(); }
  void release() { passage_->release(); }
  bool ended() const { return passage_->ended(); }
  void lead(void* stream) { passage_->lead(stream); }

 private:
  device::Passage::Trip stand_in(Request& request, int rank);

  std::shared_ptr<device::Depot> depot_;
  device::Block input_;
  device::Block output_;
  std::unique_ptr<device::Passage> passage_;
};

}  // namespace mccl::staged
