// Fence: a point in the work queued on a device. Code that must access memory after that work polls
// the fence.
#pragma once

#include "mccl/export.h"

namespace mccl {

/// A point in the work that was submitted to a device. The thread that submits the work creates the
/// fence. Any thread may poll it. A poll must neither block nor submit work to the device.
class MCCL_API Fence {
 public:
  virtual ~Fence() = default;

  /// Returns true if the device has passed the point; every later poll then returns true, too.
  /// Throws Error if the device will never pass it.
  virtual bool passed() = 0;
};

}  // namespace mccl
