#include "mccl/device_memory.h"

#include "device/cuda/driver.h"
#include "device/registry.h"
#include "mccl/error.h"

namespace mccl {

void* allocate_device_memory(Device device, std::size_t bytes) {
  return device::pool_of(device)->take(bytes);
}

void free_device_memory(Device device, void* memory) { device::pool_of(device)->give_back(memory); }

bool has_device(Device device) {
  if (!device::sees_any(device.kind)) return false;
  try {
    device::depot_of(device);
    return true;
  } catch (const Error&) {
    return false;
  }
}

void* make_stream(Device device) {
  return device::depot_of(device)->accelerator().make_queue().release()->handle();
}

bool drop_capture(void* stream) {
  const device::cuda::Driver& cu = device::cuda::driver();
  const auto raw = static_cast<device::cuda::Stream>(stream);
  int status = 0;
  cu.check(cu.StreamIsCapturing(raw, &status), "cuStreamIsCapturing");
  if (status == 0) return false;
  device::cuda::Graph graph = nullptr;
  cu.check(cu.StreamEndCapture(raw, &graph), "cuStreamEndCapture");
  if (graph) cu.GraphDestroy(graph);
  return true;
}

/// Uses the thread-local capture mode, which neither records nor rejects calls of other threads.
void begin_capture(void* stream) noexcept {
  constexpr int kThreadLocal = 1;
  const device::cuda::Driver& cu = device::cuda::driver();
  cu.StreamBeginCapture(static_cast<device::cuda::Stream>(stream), kThreadLocal);
}

}  // namespace mccl
