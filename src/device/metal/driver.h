// What is asked of Metal. macos.cpp asks the system; tests put a device of their own in its place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "mccl/export.h"
#include "mccl/fence.h"
#include "mccl/metal.h"

namespace mccl::device::metal {

/// What a kernel of ours does: out[i] = a[i] op b[i].
struct KernelCall {
  std::string name;
  MetalPlace a;
  MetalPlace b;
  MetalPlace out;
  std::uint32_t count;  ///< Elements.
};

/// Thread-safe.
class Kernels {
 public:
  virtual ~Kernels() = default;

  /// Gives the kernel to the GPU and returns at once; the fence passes when it has been run. Throws
  /// Error.
  virtual std::shared_ptr<Fence> run(const KernelCall& call) = 0;
};

struct KernelOptions {
  std::string path;    ///< Of a .metallib, or of text; empty: `source`.
  std::string source;  ///< In Metal's language.
  bool fast_math = true;
};

/// The machine's GPU. A buffer is an id<MTLBuffer>. Thread-safe.
class Driver {
 public:
  virtual ~Driver() = default;

  /// Such as "Apple M3 Ultra".
  virtual const std::string& name() const = 0;

  /// Where the host sees a buffer of shared storage; null of any other.
  virtual std::byte* contents(void* buffer) = 0;
  /// Where the GPU sees it, which tells memory of one buffer from that of another.
  virtual std::uintptr_t address(void* buffer) = 0;
  virtual std::size_t length(void* buffer) = 0;

  /// A buffer of shared storage; null without memory.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void free(void* buffer) noexcept = 0;

  /// What is worth a copy of its own: less takes no longer than the copy's command buffer.
  virtual std::size_t least_piece() const { return std::size_t{1} << 20; }
  /// Gives copies to a queue of its own, where nothing else is, and returns at once. The fence
  /// passes when all are done.
  virtual std::shared_ptr<Fence> copy(std::span<const MetalCopy> copies) = 0;
  /// Throws InvalidArgument where they cannot be had.
  virtual std::shared_ptr<Kernels> load_kernels(const KernelOptions& options) = 0;
};

/// The one that there is. Throws InvalidArgument that says in one sentence why there is none.
std::shared_ptr<Driver> driver();

/// Replaces the driver of this process; null restores the system's. Only tests call it. It is
/// exported, since those of torch's MPS tensors share one libmccl with mccl._torch.
MCCL_API void replace_driver(std::shared_ptr<Driver> other);

/// The system's. Throws as driver().
std::shared_ptr<Driver> open_driver();

}  // namespace mccl::device::metal
