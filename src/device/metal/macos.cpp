// Implements MetalDriver with the C interface of the Objective-C runtime, so that no file has to be
// written in Objective-C. Compiled and linked for Macs, but not yet run on one.
#include <dlfcn.h>
#include <fmt/format.h>
#include <objc/message.h>
#include <objc/runtime.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <utility>

#include "device/metal/driver.h"
#include "mccl/error.h"

extern "C" {
// Functions of the Objective-C runtime and of Metal that no C header declares.
void* objc_autoreleasePoolPush();
void objc_autoreleasePoolPop(void* pool);
void* objc_retain(void* object);
void objc_release(void* object);
void* MTLCreateSystemDefaultDevice();
void* MTLCopyAllDevices();
}

namespace mccl::device::metal {
namespace {

using Unsigned = unsigned long;  // NSUInteger

/// Sends a message: [object selector: arguments...]. On arm64, objc_msgSend serves methods with any
/// type of result.
template <typename Result = void, typename... Arguments>
Result send(void* object, const char* selector, Arguments... arguments) {
  const auto call = reinterpret_cast<Result (*)(void*, SEL, Arguments...)>(&objc_msgSend);
  return call(object, sel_registerName(selector), arguments...);
}

void* class_named(const char* name) { return reinterpret_cast<void*>(objc_getClass(name)); }

/// An autorelease pool. Its destructor releases the objects that Metal has autoreleased during its
/// lifetime.
class AutoreleasePool {
 public:
  AutoreleasePool() : pool_(objc_autoreleasePoolPush()) {}
  ~AutoreleasePool() { objc_autoreleasePoolPop(pool_); }
  AutoreleasePool(const AutoreleasePool&) = delete;
  AutoreleasePool& operator=(const AutoreleasePool&) = delete;

 private:
  void* const pool_;
};

/// A reference to an object, which its destructor releases. `Owned` takes over a reference that was
/// returned to the caller, as new… and copy… methods do. Owned::retain() adds a reference to an
/// object that another owner may release.
class Owned {
 public:
  explicit Owned(void* object) : object_(object) {}
  static Owned retain(void* object) { return Owned(objc_retain(object)); }
  ~Owned() { objc_release(object_); }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;

  void* get() const { return object_; }

 private:
  void* const object_;
};

std::string text_of(void* string) {
  const char* const text = string ? send<const char*>(string, "UTF8String") : nullptr;
  return text ? text : "no reason given";
}

/// Returns the text that describes an NSError, which may be null.
std::string reason_of(void* error) {
  return text_of(error ? send<void*>(error, "localizedDescription") : nullptr);
}

/// An NSString that lives until the enclosing AutoreleasePool ends.
void* string_of(const std::string& text) {
  return send<void*>(class_named("NSString"), "stringWithUTF8String:", text.c_str());
}

// Values of constants in Metal's headers.
constexpr Unsigned kCompleted = 4;  // MTLCommandBufferStatusCompleted
constexpr Unsigned kFailed = 5;     // MTLCommandBufferStatusError
constexpr Unsigned kShared = 0;     // MTLStorageModeShared, MTLResourceStorageModeShared

struct Size {  // MTLSize
  Unsigned width;
  Unsigned height;
  Unsigned depth;
};

/// A fence that passes when the command buffer has run. `what` names the command buffer in
/// messages, and must outlive the fence.
class CommandBuffer final : public Fence {
 public:
  CommandBuffer(void* buffer, const char* what) : buffer_(Owned::retain(buffer)), what_(what) {}

  bool passed() override {
    const auto status = send<Unsigned>(buffer_.get(), "status");
    if (status == kFailed) {
      const AutoreleasePool pool;
      throw Error(fmt::format("Metal: {} failed: {}", what_,
                              reason_of(send<void*>(buffer_.get(), "error"))));
    }
    return status == kCompleted;
  }

 private:
  const Owned buffer_;
  const char* const what_;
};

std::string text_in(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) throw InvalidArgument(fmt::format("shader_path: {} cannot be read", path));
  return text.str();
}

/// Returns the path of the compiled kernels in the folder of this library, for fast or strict
/// arithmetic. Empty if the build had no Metal compiler.
std::string compiled_before(bool fast_math) {
  Dl_info here = {};
  if (::dladdr(reinterpret_cast<const void*>(&open_driver), &here) == 0) return {};
  const std::filesystem::path file = std::filesystem::path(here.dli_fname).parent_path() /
                                     (fast_math ? "mccl_fast.metallib" : "mccl_strict.metallib");
  std::error_code nothing;
  return std::filesystem::exists(file, nothing) ? file.string() : std::string();
}

/// Loads a compiled library, whose arithmetic (fast or strict) was fixed when it was compiled.
void* library_in(void* device, const std::string& path, void** error) {
  void* const url = send<void*>(class_named("NSURL"), "fileURLWithPath:", string_of(path));
  return send<void*>(device, "newLibraryWithURL:error:", url, error);
}

void* library_of(void* device, const std::string& source, bool fast_math, void** error) {
  const Owned options(send<void*>(class_named("MTLCompileOptions"), "new"));
  send(options.get(), "setFastMathEnabled:", fast_math);
  return send<void*>(device, "newLibraryWithSource:options:error:", string_of(source),
                     options.get(), error);
}

/// Returns an id<MTLLibrary>, which the caller owns.
void* load_library(void* device, const KernelOptions& options) {
  const AutoreleasePool pool;
  void* error = nullptr;
  void* library = nullptr;
  const std::string path = options.path.empty() ? compiled_before(options.fast_math) : options.path;
  if (path.ends_with(".metallib")) {
    library = library_in(device, path, &error);
  } else {
    const std::string source = path.empty() ? options.source : text_in(path);
    library = library_of(device, source, options.fast_math, &error);
  }
  if (library) return library;
  throw InvalidArgument(
      fmt::format("the GPU kernels {} cannot be used: {}. Set reduce_on=cpu to use the CPU",
                  path.empty() ? "of this build" : "in " + path, reason_of(error)));
}

class KernelsOfMetal final : public Kernels {
 public:
  KernelsOfMetal(void* device, void* queue, const KernelOptions& options)
      : device_(Owned::retain(device)),
        queue_(Owned::retain(queue)),
        library_(load_library(device, options)) {}
  ~KernelsOfMetal() override {
    for (const auto& [name, pipeline] : pipelines_) objc_release(pipeline);
  }

  std::shared_ptr<Fence> run(const KernelCall& call) override {
    const AutoreleasePool pool;
    void* const pipeline = pipeline_for(call.name);
    void* const commands = send<void*>(queue_.get(), "commandBuffer");
    if (!commands) throw Error("Metal: cannot create a command buffer for a kernel");
    void* const encoder = send<void*>(commands, "computeCommandEncoder");
    send(encoder, "setComputePipelineState:", pipeline);
    Unsigned index = 0;
    for (const MetalPlace& place : {call.a, call.b, call.out}) {
      send(encoder, "setBuffer:offset:atIndex:", place.buffer, Unsigned{place.offset}, index++);
    }
    send(encoder, "setBytes:length:atIndex:", static_cast<const void*>(&call.count),
         Unsigned{sizeof(call.count)}, index);
    const auto most = send<Unsigned>(pipeline, "maxTotalThreadsPerThreadgroup");
    send(encoder, "dispatchThreads:threadsPerThreadgroup:", Size{call.count, 1, 1},
         Size{std::min<Unsigned>(most, call.count), 1, 1});
    send(encoder, "endEncoding");
    auto fence = std::make_shared<CommandBuffer>(commands, "a kernel");
    send(commands, "commit");
    return fence;
  }

 private:
  /// Caches pipelines, because making one takes milliseconds.
  void* pipeline_for(const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto found = pipelines_.find(name);
    if (found != pipelines_.end()) return found->second;
    const Owned function(send<void*>(library_.get(), "newFunctionWithName:", string_of(name)));
    if (!function.get())
      throw Error(fmt::format("Metal: the library of kernels has no function {}", name));
    void* error = nullptr;
    void* const pipeline = send<void*>(
        device_.get(), "newComputePipelineStateWithFunction:error:", function.get(), &error);
    if (!pipeline) throw Error(fmt::format("Metal: {} cannot be run: {}", name, reason_of(error)));
    pipelines_[name] = pipeline;
    return pipeline;
  }

  const Owned device_;
  const Owned queue_;
  const Owned library_;
  std::mutex mutex_;
  std::map<std::string, void*> pipelines_;  // guarded by mutex_; owned
};

class Metal final : public MetalDriver {
 public:
  explicit Metal(void* device)
      : device_(Owned::retain(device)), queue_(send<void*>(device, "newCommandQueue")) {
    const AutoreleasePool pool;
    name_ = text_of(send<void*>(device, "name"));
    if (!queue_) throw InvalidArgument("Metal: cannot create a command queue for the GPU");
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
    if (!commands) throw Error("Metal: cannot create a command buffer for a copy");
    void* const encoder = send<void*>(commands, "blitCommandEncoder");
    for (const MetalCopy& one : copies) {
      send(encoder, "copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:", one.from.buffer,
           Unsigned{one.from.offset}, one.to.buffer, Unsigned{one.to.offset}, Unsigned{one.bytes});
    }
    send(encoder, "endEncoding");
    auto fence = std::make_shared<CommandBuffer>(commands, "a copy");
    send(commands, "commit");
    return fence;
  }

  std::shared_ptr<Kernels> load_kernels(const KernelOptions& options) override {
    return std::make_shared<KernelsOfMetal>(device_.get(), queue_, options);
  }

 private:
  const Owned device_;
  void* const queue_;
  std::string name_;
};

/// Returns a device that the caller owns. Only programs linked with CoreGraphics have a default
/// device. Other programs get the first device, which is the only GPU of a Mac with Apple's chip.
void* first_device() {
  if (void* const device = MTLCreateSystemDefaultDevice()) return device;
  const Owned all(MTLCopyAllDevices());
  void* const first = all.get() ? send<void*>(all.get(), "firstObject") : nullptr;
  return first ? objc_retain(first) : nullptr;
}

}  // namespace

std::shared_ptr<MetalDriver> open_driver() {
  const Owned device(first_device());
  if (!device.get()) throw InvalidArgument("this Mac has no GPU that Metal can use");
  return std::make_shared<Metal>(device.get());
}

}  // namespace mccl::device::metal
