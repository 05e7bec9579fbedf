// What a device will have done: who is to touch memory after that asks a fence.
#pragma once

#include "mccl/export.h"

namespace mccl {

/// A place in what a device has been given to do. It is made by whoever gives the device its work,
/// on that thread; whether it has passed is asked on any thread, and asking must neither wait nor
/// give the device anything.
class MCCL_API Fence {
 public:
  virtual ~Fence() = default;

  /// Whether the device has come past it; true from then on. Throws Error where it never will.
  virtual bool passed() = 0;
};

}  // namespace mccl
