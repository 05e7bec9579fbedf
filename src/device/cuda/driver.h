// CUDA's driver, loaded at run time, so that one build serves machines with and without a GPU. This
// file declares the functions that are used, so building needs no cuda.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/library.h"

namespace mccl::device::cuda {

using Result = int;
using Context = struct ContextOfDriver*;
using Stream = struct StreamOfDriver*;
using Event = struct EventOfDriver*;
using Module = struct ModuleOfDriver*;
using Function = struct FunctionOfDriver*;
using Graph = struct GraphOfDriver*;
using Address = std::uint64_t;

struct IpcHandle {
  char bytes[64];
};

/// Function names are those of cuda.h without "cu". Each member calls the newest version of its
/// function in CUDA 12. The constructor throws LoadError if a function is missing.
struct CudaDriver {
  template <typename... Arguments>
  using Call = LibraryFunction<Result(Arguments...)>;

  SharedLibrary file{{"libcuda.so.1"}};
  Call<unsigned> Init{file, "cuInit"};
  Call<int*> DriverGetVersion{file, "cuDriverGetVersion"};
  Call<Result, const char**> GetErrorName{file, "cuGetErrorName"};
  Call<Result, const char**> GetErrorString{file, "cuGetErrorString"};
  Call<int*> DeviceGetCount{file, "cuDeviceGetCount"};
  Call<int*, int> DeviceGet{file, "cuDeviceGet"};
  Call<char*, int, int> DeviceGetName{file, "cuDeviceGetName"};
  Call<int*, int, int> DeviceGetAttribute{file, "cuDeviceGetAttribute"};
  Call<char*, int, int> DeviceGetPCIBusId{file, "cuDeviceGetPCIBusId"};
  Call<int*, const char*> DeviceGetByPCIBusId{file, "cuDeviceGetByPCIBusId"};
  Call<int*, int, int, int> DeviceGetP2PAttribute{file, "cuDeviceGetP2PAttribute"};
  Call<Context*, int> DevicePrimaryCtxRetain{file, "cuDevicePrimaryCtxRetain"};
  Call<Context*> CtxGetCurrent{file, "cuCtxGetCurrent"};
  Call<Context> CtxPushCurrent{file, "cuCtxPushCurrent_v2"};
  Call<Context*> CtxPopCurrent{file, "cuCtxPopCurrent_v2"};
  Call<> CtxSynchronize{file, "cuCtxSynchronize"};
  Call<Stream*, unsigned> StreamCreate{file, "cuStreamCreate"};
  Call<Stream> StreamDestroy{file, "cuStreamDestroy_v2"};
  Call<Stream, Event, unsigned> StreamWaitEvent{file, "cuStreamWaitEvent"};
  Call<Stream, Address, std::uint32_t, unsigned> StreamWriteValue32{file,
                                                                    "cuStreamWriteValue32_v2"};
  Call<Stream, Address, std::uint32_t, unsigned> StreamWaitValue32{file, "cuStreamWaitValue32_v2"};
  Call<Stream, int*> StreamIsCapturing{file, "cuStreamIsCapturing"};
  Call<Stream, int> StreamBeginCapture{file, "cuStreamBeginCapture_v2"};
  Call<Stream, Graph*> StreamEndCapture{file, "cuStreamEndCapture"};
  Call<Graph> GraphDestroy{file, "cuGraphDestroy"};
  Call<Stream> StreamSynchronize{file, "cuStreamSynchronize"};
  Call<Event*, unsigned> EventCreate{file, "cuEventCreate"};
  Call<Event> EventDestroy{file, "cuEventDestroy_v2"};
  Call<Event, Stream> EventRecord{file, "cuEventRecord"};
  Call<void**, std::size_t, unsigned> MemHostAlloc{file, "cuMemHostAlloc"};
  Call<void*> MemFreeHost{file, "cuMemFreeHost"};
  Call<Address*, std::size_t> MemAlloc{file, "cuMemAlloc_v2"};
  Call<Address> MemFree{file, "cuMemFree_v2"};
  Call<Address, unsigned char, std::size_t, Stream> MemsetD8Async{file, "cuMemsetD8Async"};
  Call<void*, Address, std::size_t, Stream> MemcpyDtoHAsync{file, "cuMemcpyDtoHAsync_v2"};
  Call<Address, const void*, std::size_t, Stream> MemcpyHtoDAsync{file, "cuMemcpyHtoDAsync_v2"};
  Call<void*, int, Address> PointerGetAttribute{file, "cuPointerGetAttribute"};
  Call<IpcHandle*, Address> IpcGetMemHandle{file, "cuIpcGetMemHandle"};
  Call<Address*, IpcHandle, unsigned> IpcOpenMemHandle{file, "cuIpcOpenMemHandle_v2"};
  Call<Module*, const void*> ModuleLoadData{file, "cuModuleLoadData"};
  Call<Function*, Module, const char*> ModuleGetFunction{file, "cuModuleGetFunction"};
  Call<Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream,
       void**, void**>
      LaunchKernel{file, "cuLaunchKernel"};

  int devices = 0;
  int version = 0;  ///< CUDA version of the driver, such as 13000 for CUDA 13.0.

  /// Throws Error if `result` is not success. The message contains `call` and the driver's error
  /// text.
  void check(Result result, const char* call) const;
};

/// Loads the driver at the first call. Throws InvalidArgument with a one-sentence reason if the
/// driver cannot be used.
const CudaDriver& driver();

}  // namespace mccl::device::cuda
