// Typed views of memory. They own nothing: the caller keeps the memory alive until the Work is
// done.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mccl/types.h"

namespace mccl {

enum class DeviceKind : std::uint8_t { cpu, cuda, metal };

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

/// `count` elements of `dtype` at `data`, at any alignment. `data` may be null when `count` is 0.
struct Buffer {
  void* data = nullptr;
  std::size_t count = 0;
  DType dtype = DType::f32;
  Device device = {};
  /// Of metal, where `data` is an address of the GPU's, and of memory that a Mac's GPU shares with
  /// the host: the id<MTLBuffer> that it lies in; see metal.h.
  void* allocation = nullptr;

  std::size_t bytes() const { return count * size_of(dtype); }
};

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
