// Metal's GPU as a device.
#pragma once

#include <memory>

#include "device/device.h"

namespace mccl::device::metal {

/// Throws InvalidArgument where the machine has none such.
std::shared_ptr<Accelerator> open_gpu(int index);

/// Of memory that the GPU shares with the host: where the GPU sees it.
void* address_of(const ConstBuffer& shared);

}  // namespace mccl::device::metal
