#include "device/cuda/driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "mccl/error.h"

namespace mccl::device::cuda {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";

struct Loaded {
  Driver driver{};
  std::string failure;
};

class Symbols {
 public:
  explicit Symbols(void* library) : library_(library) {}

  template <typename F>
  void find(F*& function, const char* name) {
    function = reinterpret_cast<F*>(::dlsym(library_, name));
    if (!function && missing_.empty()) missing_ = name;
  }
  const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

std::string find_functions(void* library, Driver& cu) {
  Symbols symbols(library);
  symbols.find(cu.Init, "cuInit");
  symbols.find(cu.DriverGetVersion, "cuDriverGetVersion");
  symbols.find(cu.GetErrorName, "cuGetErrorName");
  symbols.find(cu.GetErrorString, "cuGetErrorString");
  symbols.find(cu.DeviceGetCount, "cuDeviceGetCount");
  symbols.find(cu.DeviceGet, "cuDeviceGet");
  symbols.find(cu.DeviceGetName, "cuDeviceGetName");
  symbols.find(cu.DeviceGetAttribute, "cuDeviceGetAttribute");
  symbols.find(cu.DeviceGetPCIBusId, "cuDeviceGetPCIBusId");
  symbols.find(cu.DeviceGetByPCIBusId, "cuDeviceGetByPCIBusId");
  symbols.find(cu.DeviceGetP2PAttribute, "cuDeviceGetP2PAttribute");
  symbols.find(cu.DeviceCanAccessPeer, "cuDeviceCanAccessPeer");
  symbols.find(cu.DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
  symbols.find(cu.CtxGetCurrent, "cuCtxGetCurrent");
  symbols.find(cu.CtxPushCurrent, "cuCtxPushCurrent_v2");
  symbols.find(cu.CtxPopCurrent, "cuCtxPopCurrent_v2");
  symbols.find(cu.CtxSynchronize, "cuCtxSynchronize");
  symbols.find(cu.CtxEnablePeerAccess, "cuCtxEnablePeerAccess");
  symbols.find(cu.StreamCreate, "cuStreamCreate");
  symbols.find(cu.StreamDestroy, "cuStreamDestroy_v2");
  symbols.find(cu.StreamWaitEvent, "cuStreamWaitEvent");
  symbols.find(cu.StreamWriteValue32, "cuStreamWriteValue32_v2");
  symbols.find(cu.StreamWaitValue32, "cuStreamWaitValue32_v2");
  symbols.find(cu.StreamIsCapturing, "cuStreamIsCapturing");
  symbols.find(cu.StreamBeginCapture, "cuStreamBeginCapture_v2");
  symbols.find(cu.StreamEndCapture, "cuStreamEndCapture");
  symbols.find(cu.GraphDestroy, "cuGraphDestroy");
  symbols.find(cu.StreamSynchronize, "cuStreamSynchronize");
  symbols.find(cu.EventCreate, "cuEventCreate");
  symbols.find(cu.EventDestroy, "cuEventDestroy_v2");
  symbols.find(cu.EventRecord, "cuEventRecord");
  symbols.find(cu.MemHostAlloc, "cuMemHostAlloc");
  symbols.find(cu.MemFreeHost, "cuMemFreeHost");
  symbols.find(cu.MemAlloc, "cuMemAlloc_v2");
  symbols.find(cu.MemFree, "cuMemFree_v2");
  symbols.find(cu.MemsetD8Async, "cuMemsetD8Async");
  symbols.find(cu.MemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2");
  symbols.find(cu.MemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2");
  symbols.find(cu.MemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2");
  symbols.find(cu.PointerGetAttribute, "cuPointerGetAttribute");
  symbols.find(cu.IpcGetMemHandle, "cuIpcGetMemHandle");
  symbols.find(cu.IpcOpenMemHandle, "cuIpcOpenMemHandle_v2");
  symbols.find(cu.IpcCloseMemHandle, "cuIpcCloseMemHandle");
  symbols.find(cu.ModuleLoadData, "cuModuleLoadData");
  symbols.find(cu.ModuleGetFunction, "cuModuleGetFunction");
  symbols.find(cu.LaunchKernel, "cuLaunchKernel");
  return symbols.missing();
}

std::string said_by(const Driver& cu, Result result) {
  const char* name = nullptr;
  const char* text = nullptr;
  cu.GetErrorName(result, &name);
  cu.GetErrorString(result, &text);
  return fmt::format("{} ({})", name ? name : fmt::format("error {}", result),
                     text ? text : "the driver gives no description");
}

/// Returns the reason if the driver cannot be loaded; otherwise empty. The library stays loaded
/// until the process ends.
std::string load(Driver& cu) {
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    return fmt::format("this host has no CUDA driver ({})", ::dlerror());
  }
  if (const std::string missing = find_functions(library, cu); !missing.empty()) {
    return fmt::format("the CUDA driver {} has no {}: CUDA 12 or newer is needed", kLibrary,
                       missing);
  }
  for (const Result result :
       {cu.Init(0), cu.DriverGetVersion(&cu.version), cu.DeviceGetCount(&cu.devices)}) {
    if (result != 0) return fmt::format("the CUDA driver finds no GPU: {}", said_by(cu, result));
  }
  return {};
}

}  // namespace

void Driver::check(Result result, const char* call) const {
  if (result == 0) return;
  throw Error(fmt::format("CUDA: {} failed: {}", call, said_by(*this, result)));
}

const Driver& driver() {
  static const Loaded loaded = [] {
    Loaded made;
    made.failure = load(made.driver);
    return made;
  }();
  if (!loaded.failure.empty()) throw InvalidArgument(loaded.failure);
  return loaded.driver;
}

}  // namespace mccl::device::cuda
