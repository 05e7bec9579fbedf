// The Accelerator of a Mac's GPU.
#pragma once

#include <memory>

#include "device/device.h"

namespace mccl::device::metal {

/// Opens the GPU with this index, which must be 0. Throws InvalidArgument if there is no such GPU.
std::shared_ptr<Accelerator> open_gpu(int index);

/// Returns the GPU address of memory that the GPU shares with the host.
void* address_of(const ConstBuffer& shared);

}  // namespace mccl::device::metal
