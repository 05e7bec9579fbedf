// The Accelerator of a CUDA GPU.
#pragma once

#include <memory>

#include "device/cuda/driver.h"
#include "device/device.h"

namespace mccl::device::cuda {

/// Keeps a GPU's primary context current on this thread during its lifetime. CUDA's runtime uses
/// the same context, so it is usually current already. The constructor checks for this case first,
/// because the check is faster than pushing and popping the context.
class Current {
 public:
  Current(const CudaDriver& cu, Context context) : cu_(cu) {
    Context now = nullptr;
    if (cu.CtxGetCurrent(&now) == 0 && now == context) return;
    cu.check(cu.CtxPushCurrent(context), "cuCtxPushCurrent");
    pushed_ = true;
  }
  ~Current() {
    Context popped = nullptr;
    if (pushed_) cu_.CtxPopCurrent(&popped);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const CudaDriver& cu_;
  bool pushed_ = false;
};

/// Opens the GPU with this index. Throws InvalidArgument if this process sees no such GPU.
std::shared_ptr<Accelerator> open_gpu(int index);

/// The GPU's primary context, which is kept until the process ends.
Context context_of(int index);

}  // namespace mccl::device::cuda
