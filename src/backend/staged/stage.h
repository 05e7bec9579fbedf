// Turns a call on device memory into a call on host memory.
#pragma once

#include <exception>
#include <memory>

#include "backend/request.h"
#include "device/depot.h"
#include "mccl/group.h"

namespace mccl::staged {

/// Returns the request with GPU addresses in place of the host addresses of memory that a Mac's GPU
/// shares with the host.
Request as_the_gpu_sees(const Request& request);

/// Holds the pinned memory of one call, and the HostBounce that copies data to that memory and
/// back. A call on host memory has a Stage only to wait for its fence, and then uses neither pinned
/// memory nor a HostBounce. Not thread-safe.
class Stage final : public engine::Conveyor {
 public:
  /// Turns the request of rank `rank` into a request on host memory. The device copies the input to
  /// that memory once the caller's stream has reached this call or its fence has passed. `early`:
  /// true if the call may start before all of its input has arrived. Throws InvalidArgument if
  /// input and output lie on different devices, if memory does not belong to its device, or if the
  /// stream is being captured.
  Stage(Request& request, int rank, const CallOptions& options, bool early);
  /// If the device has not finished, it may still use the pinned memory and the HostBounce, which
  /// are then never freed or reused.
  ~Stage() override;

  /// True if the call on host memory may start: its input has arrived or, if the input is cut into
  /// pieces, the first piece has arrived. Also true if the stage has failed.
  bool may_start();
  std::size_t arrived() const override;
  std::size_t piece_of_output() const override { return piece_; }
  /// Allows the first `bytes` of the output to be copied to the device. No-op for output in host
  /// memory.
  void deliver(std::size_t bytes) override {
    if (trip_.output_bytes != 0) bounce_->release(bytes);
  }
  /// Must be called when the call on host memory has ended.
  void finish(bool failed);
  bool ended();
  /// The error of the fence or of a copy; null if there is none.
  std::exception_ptr failure() const { return failure_; }

  /// True if lead() can make a stream wait for the end of the call.
  bool leads() const { return bounce_ && bounce_->leads(); }
  void lead(void* stream) { bounce_->lead(stream); }

 private:
  device::HostBounce::Trip stand_in(Request& request, int rank);
  bool cut(const Request& request, bool early);
  void begin();
  void keep_memory();
  template <typename Poll>
  bool guarded(const Poll& poll);

  std::shared_ptr<Fence> fence_;  ///< Null if the call has no fence, or once the fence has passed.
  std::shared_ptr<device::Depot> depot_;
  device::Block input_;
  device::Block output_;
  std::size_t piece_ = 0;  ///< Length in bytes of the pieces that the device copies.
  bool by_pieces_ = false;
  std::unique_ptr<device::HostBounce> bounce_;
  device::HostBounce::Trip trip_{};
  bool begun_ = false;
  bool finished_ = false;
  std::exception_ptr failure_;
};

}  // namespace mccl::staged
