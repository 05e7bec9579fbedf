// GPU memory of the engine's for torch, which the other ranks' GPUs can come to reach.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <utility>

namespace mccl_torch {

/// The functions by which a torch.cuda.MemPool takes and gives back its memory, as addresses.
std::pair<std::uint64_t, std::uint64_t> memory_functions();

/// Whether this process has the GPU.
bool has_gpu(c10::DeviceIndex index);

}  // namespace mccl_torch
