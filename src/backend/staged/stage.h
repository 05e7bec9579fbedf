// A call on a device's memory, made into one on host memory.
#pragma once

#include <exception>
#include <memory>

#include "backend/request.h"
#include "device/depot.h"
#include "mccl/group.h"

namespace mccl::staged {

inline bool lies_on(DeviceKind kind, const Request& request) {
  return request.in.device.kind == kind || request.out.device.kind == kind;
}

/// Whether any of the memory lies on a device.
inline bool on_device(const Request& request) {
  return request.in.device.kind != DeviceKind::cpu || request.out.device.kind != DeviceKind::cpu;
}

/// Of memory that a Mac's GPU shares with the host: the same call on the GPU's own.
Request as_the_gpu_sees(const Request& request);

/// Whether a call must wait for a device, or be made on other memory.
inline bool needs_stage(const Request& request, const CallOptions& options) {
  return on_device(request) || options.fence;
}

/// Holds the pinned memory of one call, and the passage that carries data to it and back; of host
/// memory behind a fence, neither. Not thread-safe.
class Stage final : public Conveyor {
 public:
  /// Turns `request`, of `rank`, into one on host memory, and has the device bring the input there
  /// as soon as the caller's stream has come to this call, or its fence has passed. `early`: the
  /// call heeds its conveyor. Throws InvalidArgument.
  Stage(Request& request, int rank, const CallOptions& options, bool early);
  /// Where the device's side has not ended, what it uses is not used again.
  ~Stage() override;

  /// Whether the host's call may start: as soon as the first piece of its input is there, if it
  /// goes by pieces. Or whether it has failed before.
  bool may_start();
  std::size_t arrived() const override;
  std::size_t piece_of_output() const override { return piece_; }
  /// Output that lies on the host is where it belongs.
  void deliver(std::size_t bytes) override {
    if (trip_.output_bytes != 0) passage_->release(bytes);
  }
  /// The host's call is over.
  void finish(bool failed);
  bool ended();
  /// What the device's side failed with.
  std::exception_ptr failure() const { return failure_; }

  /// Whether streams can wait for the call's end.
  bool leads() const { return passage_ && passage_->leads(); }
  void lead(void* stream) { passage_->lead(stream); }

 private:
  device::Passage::Trip stand_in(Request& request, int rank);
  bool cut(const Request& request, bool early);
  void begin();

  std::shared_ptr<Fence> fence_;  ///< Null once it has passed.
  std::shared_ptr<device::Depot> depot_;
  device::Block input_;
  device::Block output_;
  std::size_t piece_ = 0;  ///< What goes at a time.
  bool by_pieces_ = false;
  std::unique_ptr<device::Passage> passage_;
  device::Passage::Trip trip_{};
  bool begun_ = false;
  bool finished_ = false;
  std::exception_ptr failure_;
};

}  // namespace mccl::staged
