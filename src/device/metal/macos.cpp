// Metal by the C interface of the Objective-C runtime. Compiled and linked for Macs; not yet run on
// one.
#include <fmt/format.h>
#include <objc/message.h>
#include <objc/runtime.h>

#include <atomic>
#include <utility>

#include "device/metal/driver.h"
#include "mccl/error.h"

extern "C" {
void* MTLCreateSystemDefaultDevice();
// Of the runtime, though no header of C has them.
void* objc_autoreleasePoolPush();
void objc_autoreleasePoolPop(void* pool);
void* objc_retain(void* object);
void objc_release(void* object);
}

namespace mccl::device::metal {
namespace {

using Unsigned = unsigned long;  // NSUInteger

// As Metal's headers have them.
constexpr Unsigned kShared = 0;     // MTLStorageModeShared, MTLResourceStorageModeShared
constexpr Unsigned kCompleted = 4;  // MTLCommandBufferStatusCompleted
constexpr Unsigned kFailed = 5;     // MTLCommandBufferStatusError

/// [object selector: arguments...]. On arm64 every result comes back in the same way.
template <typename Result = void, typename... Arguments>
Result send(void* object, const char* selector, Arguments... arguments) {
  const auto call = reinterpret_cast<Result (*)(void*, SEL, Arguments...)>(&objc_msgSend);
  return call(object, sel_registerName(selector), arguments...);
}

/// Lets go, when it ends, of what Metal has handed out meanwhile.
class Pool {
 public:
  Pool() : pool_(objc_autoreleasePoolPush()) {}
  ~Pool() { objc_autoreleasePoolPop(pool_); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

 private:
  void* const pool_;
};

/// An object that somebody else may let go of.
class Kept {
 public:
  explicit Kept(void* object) : object_(objc_retain(object)) {}
  ~Kept() { objc_release(object_); }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;

  void* get() const { return object_; }

 private:
  void* const object_;
};

std::string text_of(void* string) {
  const char* const text = string ? send<const char*>(string, "UTF8String") : nullptr;
  return text ? text : "no reason given";
}

class CommandBuffer final : public Fence {
 public:
  explicit CommandBuffer(void* buffer) : buffer_(buffer) {}

  bool passed() override {
    const auto status = send<Unsigned>(buffer_.get(), "status");
    if (status == kFailed) {
      const Pool pool;
      void* const error = send<void*>(buffer_.get(), "error");
      throw Error(
          fmt::format("Metal: a copy failed: {}",
                      text_of(error ? send<void*>(error, "localizedDescription") : nullptr)));
    }
    return status == kCompleted;
  }

 private:
  const Kept buffer_;
};

class Metal final : public Driver {
 public:
  explicit Metal(void* device) : device_(device), queue_(send<void*>(device, "newCommandQueue")) {
    const Pool pool;
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
    const Pool pool;
    void* const commands = send<void*>(queue_, "commandBuffer");
    if (!commands) throw Error("Metal: no command buffer for a copy");
    void* const encoder = send<void*>(commands, "blitCommandEncoder");
    for (const MetalCopy& one : copies) {
      send(encoder, "copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:", one.from.buffer,
           Unsigned{one.from.offset}, one.to.buffer, Unsigned{one.to.offset}, Unsigned{one.bytes});
    }
    send(encoder, "endEncoding");
    auto fence = std::make_shared<CommandBuffer>(commands);
    send(commands, "commit");
    return fence;
  }

 private:
  const Kept device_;
  void* const queue_;
  std::string name_;
};

}  // namespace

std::shared_ptr<Driver> open_driver() {
  void* const device = MTLCreateSystemDefaultDevice();
  if (!device) throw InvalidArgument("this Mac has no GPU that Metal can use");
  auto metal = std::make_shared<Metal>(device);
  objc_release(device);
  return metal;
}

}  // namespace mccl::device::metal
