#include "mccl/device_memory.h"

#include "device/registry.h"

namespace mccl {

void* allocate_device_memory(Device device, std::size_t bytes) {
  return device::pool_of(device)->take(bytes);
}

void free_device_memory(Device device, void* memory) { device::pool_of(device)->give_back(memory); }

}  // namespace mccl
