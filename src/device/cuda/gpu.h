// A CUDA GPU as a device.
#pragma once

#include <memory>

#include "device/cuda/driver.h"
#include "device/device.h"

namespace mccl::device::cuda {

/// Makes a GPU's context, the one that CUDA's runtime uses too, the thread's while it lives.
class Current {
 public:
  Current(const Driver& cu, Context context) : cu_(cu) {
    cu.check(cu.CtxPushCurrent(context), "cuCtxPushCurrent");
  }
  ~Current() {
    Context popped = nullptr;
    cu_.CtxPopCurrent(&popped);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const Driver& cu_;
};

/// Throws InvalidArgument where the machine has no such GPU.
std::shared_ptr<Accelerator> open_gpu(int index);

/// The GPU's context, which stays for as long as the process lives.
Context context_of(int index);

}  // namespace mccl::device::cuda
