// Typed views of memory. A view owns nothing: the caller must keep the memory valid until the Work
// of the call is done.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mccl/types.h"

namespace mccl {

/// The kinds of devices: the host, NVIDIA GPUs, and a Mac's GPU.
enum class DeviceKind : std::uint8_t { cpu, cuda, metal };

/// A processor and its memory.
struct Device {
  DeviceKind kind = DeviceKind::cpu;  ///< Kind of the device.
  int index = 0;                      ///< Index among the devices of this kind, from 0.
  friend bool operator==(const Device&, const Device&) = default;
};

/// A view of `count` elements of type `dtype` at `data` that a call may read and write. `data` may
/// have any alignment, and may be null if `count` is 0.
struct Buffer {
  void* data = nullptr;      ///< First element.
  std::size_t count = 0;     ///< Number of elements.
  DType dtype = DType::f32;  ///< Type of an element.
  Device device = {};        ///< The device in whose memory the data lie.
  /// The id<MTLBuffer> that contains the memory; see metal.h. Set if `device` is metal (`data` is
  /// then a GPU address) or if a Mac's GPU shares the memory with the host. Null otherwise.
  void* allocation = nullptr;

  /// Length of the view in bytes.
  std::size_t bytes() const { return count * size_of(dtype); }
};

/// A view of memory that a call only reads. The fields have the same meaning as those of Buffer.
struct ConstBuffer {
  const void* data = nullptr;
  std::size_t count = 0;
  DType dtype = DType::f32;
  Device device = {};
  void* allocation = nullptr;

  ConstBuffer() = default;
  ConstBuffer(const void* d, std::size_t n, DType t, Device dev = {}, void* from = nullptr)
      : data(d), count(n), dtype(t), device(dev), allocation(from) {}
  ConstBuffer(const Buffer& b)
      : data(b.data), count(b.count), dtype(b.dtype), device(b.device), allocation(b.allocation) {}

  std::size_t bytes() const { return count * size_of(dtype); }
};

}  // namespace mccl
