#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "device/metal/driver.h"
#include "device/registry.h"
#include "mccl/error.h"
#include "mccl/metal.h"

namespace mccl {
namespace device::metal {
namespace {

struct DriverSlot {
  std::mutex mutex;
  std::shared_ptr<MetalDriver> driver;  // guarded by mutex
};

/// Never destroyed, because calls may end after statics have been destroyed.
DriverSlot& place() {
  static DriverSlot* const instance = new DriverSlot;
  return *instance;
}

}  // namespace

std::shared_ptr<MetalDriver> driver() {
  DriverSlot& here = place();
  const std::lock_guard lock(here.mutex);
  if (!here.driver) here.driver = open_driver();
  return here.driver;
}

void replace_driver(std::shared_ptr<MetalDriver> other) {
  DriverSlot& here = place();
  {
    const std::lock_guard lock(here.mutex);
    here.driver = std::move(other);
  }
  // This call also drops the depots, which hold the pinned memory and bounces of the previous
  // driver.
  replace_maker(DeviceKind::metal, nullptr);
}

#ifndef __APPLE__
std::shared_ptr<MetalDriver> open_driver() {
  throw InvalidArgument("this host has no Metal, which only Macs have");
}
#endif

}  // namespace device::metal

namespace {

void require_inside(device::metal::MetalDriver& gpu, MetalPlace place, std::size_t bytes) {
  if (!place.buffer) throw InvalidArgument("a Metal buffer is null");
  const std::size_t length = gpu.length(place.buffer);
  if (place.offset <= length && bytes <= length - place.offset) return;
  throw InvalidArgument(fmt::format("{} bytes at offset {} exceed a Metal buffer of {} bytes",
                                    bytes, place.offset, length));
}

void wait_for(Fence& copies) {
  constexpr std::chrono::microseconds kNap{50};
  while (!copies.passed()) std::this_thread::sleep_for(kNap);
}

}  // namespace

Buffer metal_buffer(MetalPlace place, std::size_t count, DType dtype) {
  if (count == 0) return {nullptr, 0, dtype};
  const auto gpu = device::metal::driver();
  require_inside(*gpu, place, count * size_of(dtype));
  if (std::byte* const host = gpu->contents(place.buffer)) {
    return {host + place.offset, count, dtype, {}, place.buffer};
  }
  // NOLINTNEXTLINE(performance-no-int-to-ptr): Metal returns a buffer's address as an integer
  return {reinterpret_cast<void*>(gpu->address(place.buffer) + place.offset),
          count,
          dtype,
          {DeviceKind::metal, 0},
          place.buffer};
}

void metal_copy(std::span<const MetalCopy> copies) {
  const auto gpu = device::metal::driver();
  std::vector<MetalCopy> by_gpu;
  for (const MetalCopy& one : copies) {
    if (one.bytes == 0) continue;
    require_inside(*gpu, one.from, one.bytes);
    require_inside(*gpu, one.to, one.bytes);
    const std::byte* const from = gpu->contents(one.from.buffer);
    std::byte* const to = gpu->contents(one.to.buffer);
    if (from && to) {
      std::memmove(to + one.to.offset, from + one.from.offset, one.bytes);
    } else {
      by_gpu.push_back(one);
    }
  }
  if (!by_gpu.empty()) wait_for(*gpu->copy(by_gpu));
}

}  // namespace mccl
