// Implements the driver with the C interface of the Objective-C runtime. Compiled and linked for
// Macs, but not yet run on one.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "device/metal/driver.h"
#include "device/metal/macos_kernels.h"
#include "device/metal/objc.h"
#include "mccl/error.h"

extern "C" {
void* MTLCreateSystemDefaultDevice();
void* MTLCopyAllDevices();
}

namespace mccl::device::metal {
namespace {

// Value of a constant in Metal's headers.
constexpr Unsigned kShared = 0;  // MTLStorageModeShared, MTLResourceStorageModeShared

class Metal final : public Driver {
 public:
  explicit Metal(void* device)
      : device_(Owned::retain(device)), queue_(send<void*>(device, "newCommandQueue")) {
    const AutoreleasePool pool;
    name_ = text_of(send<void*>(device, "name"));
    if (!queue_) throw InvalidArgument("Metal: the GPU gives no command queue");
  }
  ~Metal() override { objc_release(queue_); }

  const std::string& name() const override { return name_; }

  std::byte* contents(void* buffer) override {
    if (send<Unsigned>(buffer, "storageMode") != kShared) return nullptr;
    return static_cast<std::byte*>(send<void*>(buffer, "contents"));
  }
  std::uintptr_t address(void* buffer) override {
    return send<std::uint64_t>(buffer, "gpuAddress");
  }
  std::size_t length(void* buffer) override { return send<Unsigned>(buffer, "length"); }

  void* allocate(std::size_t bytes) override {
    return send<void*>(device_.get(), "newBufferWithLength:options:", Unsigned{bytes}, kShared);
  }
  void free(void* buffer) noexcept override { objc_release(buffer); }

  std::shared_ptr<Fence> copy(std::span<const MetalCopy> copies) override {
    const AutoreleasePool pool;
    void* const commands = send<void*>(queue_, "commandBuffer");
    if (!commands) throw Error("Metal: no command buffer for a copy");
    void* const encoder = send<void*>(commands, "blitCommandEncoder");
    for (const MetalCopy& one : copies) {
      send(encoder, "copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:", one.from.buffer,
           Unsigned{one.from.offset}, one.to.buffer, Unsigned{one.to.offset}, Unsigned{one.bytes});
    }
    send(encoder, "endEncoding");
    auto fence = fence_of(commands, "a copy");
    send(commands, "commit");
    return fence;
  }

  std::shared_ptr<Kernels> load_kernels(const KernelOptions& options) override {
    return metal::load_kernels(device_.get(), queue_, options);
  }

 private:
  const Owned device_;
  void* const queue_;
  std::string name_;
};

/// Returns a device that the caller owns. Only programs linked with CoreGraphics have a default
/// device. Others take the first one, which is the only GPU of a Mac with Apple's chip.
void* first_device() {
  if (void* const device = MTLCreateSystemDefaultDevice()) return device;
  const Owned all(MTLCopyAllDevices());
  void* const first = all.get() ? send<void*>(all.get(), "firstObject") : nullptr;
  return first ? objc_retain(first) : nullptr;
}

}  // namespace

std::shared_ptr<Driver> open_driver() {
  const Owned device(first_device());
  if (!device.get()) throw InvalidArgument("this Mac has no GPU that Metal can use");
  return std::make_shared<Metal>(device.get());
}

}  // namespace mccl::device::metal
