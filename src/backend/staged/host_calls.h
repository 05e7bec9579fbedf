// Interface through which a line calls its group's functions on host memory.
#pragma once

#include <chrono>
#include <string>

#include "backend/request.h"
#include "mccl/group.h"
#include "mccl/work.h"

namespace mccl::staged {

class HostCalls {
 public:
  virtual int own_rank() const = 0;
  virtual Work start(const Request& request, const CallOptions& options) = 0;
  /// True if a call for `request` uses its conveyor, so that it may start before its whole input
  /// has arrived.
  virtual bool begins_early(const Request& request) const = 0;
  /// Begins a batch: calls that this thread makes from now on start together in end_batch().
  virtual void begin_batch() = 0;
  virtual Work end_batch() = 0;
  virtual bool batch_is_open() const = 0;
  virtual std::chrono::milliseconds timeout_of(const CallOptions& options) const = 0;
  /// True if the group has failed, so that each new call fails immediately. Called often, with the
  /// line's lock held.
  virtual bool has_failed() const = 0;
  virtual void give_up(const std::string& reason) = 0;

 protected:
  ~HostCalls() = default;
};

}  // namespace mccl::staged
