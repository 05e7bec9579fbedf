#include "device/registry.h"

#include <fmt/format.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/environment.h"
#include "device/cuda/driver.h"
#include "device/cuda/gpu.h"
#include "device/metal/gpu.h"
#include "mccl/device_memory.h"
#include "mccl/error.h"

namespace mccl::device {
namespace {

struct Devices {
  std::mutex mutex;
  std::map<std::pair<DeviceKind, int>, std::shared_ptr<Depot>> depots;  // guarded by mutex
  std::map<std::pair<DeviceKind, int>, std::shared_ptr<Pool>> pools;    // guarded by mutex
  std::map<DeviceKind, Maker> makers;                                   // guarded by mutex
};

/// Never destroyed, because a device's driver may be unloaded before statics are destroyed.
Devices& registry() {
  static Devices* const instance = new Devices;
  return *instance;
}

/// True if CUDA_VISIBLE_DEVICES hides all GPUs. CUDA uses the listed devices up to the first
/// invalid entry, such as -1.
bool hides_all_gpus() {
  const auto environment = process_environment();
  const auto list = environment.find("CUDA_VISIBLE_DEVICES");
  return list != environment.end() && (list->second.empty() || list->second.starts_with('-'));
}

std::shared_ptr<Accelerator> make(Devices& all, Device device) {
  const auto replaced = all.makers.find(device.kind);
  if (replaced != all.makers.end()) return replaced->second(device.index);
  if (device.kind == DeviceKind::cuda) return cuda::open_gpu(device.index);
  if (device.kind == DeviceKind::metal) return metal::open_gpu(device.index);
  throw InvalidArgument(
      fmt::format("{}: this build does not support devices of this kind; copy the data to the host",
                  name_of(device)));
}

}  // namespace

std::string name_of(Device device) {
  const char* kind = device.kind == DeviceKind::cpu    ? "cpu"
                     : device.kind == DeviceKind::cuda ? "cuda"
                                                       : "metal";
  return fmt::format("{}:{}", kind, device.index);
}

std::shared_ptr<Depot> depot_of(Device device) {
  Devices& all = registry();
  const std::lock_guard lock(all.mutex);
  std::shared_ptr<Depot>& depot = all.depots[{device.kind, device.index}];
  if (!depot) depot = std::make_shared<Depot>(make(all, device));
  return depot;
}

std::shared_ptr<Pool> pool_of(Device device) {
  const std::shared_ptr<Depot> depot = depot_of(device);
  Devices& all = registry();
  const std::lock_guard lock(all.mutex);
  std::shared_ptr<Pool>& pool = all.pools[{device.kind, device.index}];
  if (!pool) pool = std::make_shared<Pool>(depot->shared_accelerator());
  return pool;
}

void release_unused(Clock::duration time) {
  std::vector<std::shared_ptr<Depot>> depots;
  Devices& all = registry();
  {
    const std::lock_guard lock(all.mutex);
    for (const auto& [device, depot] : all.depots) depots.push_back(depot);
  }
  for (const auto& depot : depots) depot->release_unused(time);
}

bool sees_any(DeviceKind kind) {
  Devices& all = registry();
  {
    const std::lock_guard lock(all.mutex);
    if (all.makers.contains(kind)) return true;
  }
  return kind == DeviceKind::cuda && ::access("/dev/nvidiactl", F_OK) == 0 && !hides_all_gpus();
}

void replace_maker(DeviceKind kind, Maker maker) {
  Devices& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto is_of_kind = [kind](const auto& entry) { return entry.first.first == kind; };
  std::erase_if(all.pools, is_of_kind);
  std::erase_if(all.depots, is_of_kind);
  if (maker) {
    all.makers[kind] = std::move(maker);
  } else {
    all.makers.erase(kind);
  }
}

}  // namespace mccl::device

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
  const device::cuda::CudaDriver& cu = device::cuda::driver();
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
  const device::cuda::CudaDriver& cu = device::cuda::driver();
  cu.StreamBeginCapture(static_cast<device::cuda::Stream>(stream), kThreadLocal);
}

}  // namespace mccl
