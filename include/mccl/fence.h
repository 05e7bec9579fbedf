// Fence: a point in the work queued on a device. Code that must access memory after that work polls
// the fence.
#pragma once

#include "mccl/export.h"

namespace mccl {

/// A point in the work that a device was given. The thread that gives the device its work creates
/// the fence. Any thread may poll it. A poll must neither block nor give work to the device.
class MCCL_API Fence {
 public:
  virtual ~Fence() = default;

  /// True once the device has passed the point, and from then on. Throws Error if the device will
  /// never pass it.
  virtual bool passed() = 0;
};

}  // namespace mccl
