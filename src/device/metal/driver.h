// The functions of Metal that MCCL uses. macos.cpp implements them on macOS; tests replace them.
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

/// One run of an MCCL kernel: out[i] = a[i] op b[i].
struct KernelCall {
  std::string name;
  MetalPlace a;
  MetalPlace b;
  MetalPlace out;
  std::uint32_t count;  ///< Number of elements.
};

/// MCCL's kernels, loaded for this GPU. Thread-safe.
class Kernels {
 public:
  virtual ~Kernels() = default;

  /// Submits the kernel and returns immediately. The fence passes when the kernel has run. Throws
  /// Error if the kernel does not exist or cannot be submitted.
  virtual std::shared_ptr<Fence> run(const KernelCall& call) = 0;
};

struct KernelOptions {
  std::string path;    ///< Path of a .metallib or a source file. If empty, `source` is used.
  std::string source;  ///< Source text in Metal's language.
  bool fast_math = true;
};

/// The machine's GPU. A buffer is an id<MTLBuffer>. Thread-safe.
class MetalDriver {
 public:
  virtual ~MetalDriver() = default;

  /// Name of the GPU, such as "Apple M3 Ultra".
  virtual const std::string& name() const = 0;

  /// Host address of a buffer in shared storage; null for any other storage.
  virtual std::byte* contents(void* buffer) = 0;
  /// GPU address of a buffer, which distinguishes it from other buffers.
  virtual std::uintptr_t address(void* buffer) = 0;
  virtual std::size_t length(void* buffer) = 0;

  /// Allocates a buffer in shared storage. Returns null if there is no memory.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void free(void* buffer) noexcept = 0;

  /// Smallest useful HostBounce::Trip::piece in bytes. Copying a smaller piece takes less time than
  /// submitting the command buffer that the copy needs.
  virtual std::size_t least_piece() const { return std::size_t{1} << 20; }
  /// Submits copies to a queue that is used for nothing else, and returns immediately. The fence
  /// passes when all copies are done.
  virtual std::shared_ptr<Fence> copy(std::span<const MetalCopy> copies) = 0;
  /// Loads MCCL's kernels. Throws InvalidArgument if they cannot be loaded.
  virtual std::shared_ptr<Kernels> load_kernels(const KernelOptions& options) = 0;
};

/// Returns the current driver. Throws InvalidArgument with a one-sentence reason if there is none.
std::shared_ptr<MetalDriver> driver();

/// Replaces the driver, in tests only. Null restores the system's driver.
MCCL_API void replace_driver(std::shared_ptr<MetalDriver> other);

/// Opens the system's Metal. Throws like driver().
std::shared_ptr<MetalDriver> open_driver();

}  // namespace mccl::device::metal
