// Compiled and linked for Macs, but not yet run on one.
#include "device/metal/macos_kernels.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <utility>

#include "device/metal/objc.h"
#include "mccl/error.h"

namespace mccl::device::metal {
namespace {

// Values of constants in Metal's headers.
constexpr Unsigned kCompleted = 4;  // MTLCommandBufferStatusCompleted
constexpr Unsigned kFailed = 5;     // MTLCommandBufferStatusError

struct Size {  // MTLSize
  Unsigned width;
  Unsigned height;
  Unsigned depth;
};

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

/// Returns the path of the compiled kernels beside this library, for fast or strict arithmetic.
/// Empty if the build had no Metal compiler.
std::string compiled_before(bool fast_math) {
  Dl_info here = {};
  if (::dladdr(reinterpret_cast<const void*>(&load_kernels), &here) == 0) return {};
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
  throw InvalidArgument(fmt::format("the kernels {} cannot be used: {}; reduce_on=cpu needs none",
                                    path.empty() ? "of this build" : "in " + path,
                                    reason_of(error)));
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
    if (!commands) throw Error("Metal: no command buffer for a kernel");
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
    auto fence = fence_of(commands, "a kernel");
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
    if (!function.get()) throw Error(fmt::format("Metal: the kernels have no {}", name));
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

}  // namespace

std::shared_ptr<Kernels> load_kernels(void* device, void* queue, const KernelOptions& options) {
  return std::make_shared<KernelsOfMetal>(device, queue, options);
}

std::shared_ptr<Fence> fence_of(void* command_buffer, const char* what) {
  return std::make_shared<CommandBuffer>(command_buffer, what);
}

}  // namespace mccl::device::metal
