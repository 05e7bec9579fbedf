// GPU memory from the engine's allocator for torch, which other ranks' GPUs can reach.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <utility>

namespace mccl_torch {

/// Addresses of the functions with which a torch.cuda.MemPool allocates and frees its memory.
std::pair<std::uint64_t, std::uint64_t> memory_functions();

/// True if this process sees the GPU with this index.
bool has_gpu(c10::DeviceIndex index);

}  // namespace mccl_torch
