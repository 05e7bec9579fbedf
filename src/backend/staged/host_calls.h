// Interface through which a line makes calls on host memory in its group.
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
  /// True if such a call uses its conveyor, so that it may start before its whole input has
  /// arrived.
  virtual bool begins_early(const Request& request) const = 0;
  /// Calls that this thread starts before end_batch() start together.
  virtual void begin_batch() = 0;
  virtual Work end_batch() = 0;
  virtual bool batch_is_open() const = 0;
  virtual std::chrono::milliseconds timeout_of(const CallOptions& options) const = 0;
  /// True if calls fail as soon as they are started. Called often, and under the line's lock.
  virtual bool has_failed() const = 0;
  virtual void give_up(const std::string& reason) = 0;

 protected:
  ~HostCalls() = default;
};

}  // namespace mccl::staged
