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
class Stage final : public Conveyor {
 public:
  /// Turns `request`, of `rank`, into one on pinned memory, and has the device bring the input
  /// there as soon as `stream` has come to this call. `early`: the call heeds its conveyor. Throws
  /// InvalidArgument.
  Stage(Request& request, int rank, void* stream, bool early);
  /// Where the device's side has not ended, what it uses is not used again.
  ~Stage() override;

  /// Whether the call may start: as soon as the first piece of its input is there, if it goes by
  /// pieces.
  bool may_start() const;
  std::size_t arrived() const override;
  std::size_t piece_of_output() const override { return piece_; }
  void deliver(std::size_t bytes) override { passage_->release(bytes); }
  void release() { passage_->release(); }
  bool ended() const { return passage_->ended(); }
  void lead(void* stream) { passage_->lead(stream); }

 private:
  device::Passage::Trip stand_in(Request& request, int rank);
  bool cut(device::Passage::Trip& trip, const Request& request, bool early);

  std::shared_ptr<device::Depot> depot_;
  device::Block input_;
  device::Block output_;
  std::size_t piece_ = 0;  ///< What goes at a time.
  std::size_t input_bytes_ = 0;
  bool by_pieces_ = false;
  std::unique_ptr<device::Passage> passage_;
};

}  // namespace mccl::staged
