// CUDA's driver, loaded at run time, so that one build serves machines with and without a GPU. This
// file declares the functions that are used, so building needs no cuda.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

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

/// Function names are those of cuda.h without "cu". Each points to the newest version of the
/// function in CUDA 12.
struct Driver {
  Result (*Init)(unsigned flags);
  Result (*DriverGetVersion)(int* version);
  Result (*GetErrorName)(Result, const char** name);
  Result (*GetErrorString)(Result, const char** text);
  Result (*DeviceGetCount)(int* count);
  Result (*DeviceGet)(int* device, int index);
  Result (*DeviceGetName)(char* name, int length, int device);
  Result (*DeviceGetAttribute)(int* value, int attribute, int device);
  Result (*DeviceGetPCIBusId)(char* id, int length, int device);
  Result (*DeviceGetByPCIBusId)(int* device, const char* id);
  Result (*DeviceGetP2PAttribute)(int* value, int attribute, int from, int to);
  Result (*DeviceCanAccessPeer)(int* can, int device, int peer);
  Result (*DevicePrimaryCtxRetain)(Context*, int device);
  Result (*CtxGetCurrent)(Context*);
  Result (*CtxPushCurrent)(Context);
  Result (*CtxPopCurrent)(Context*);
  Result (*CtxSynchronize)();
  Result (*CtxEnablePeerAccess)(Context, unsigned flags);
  Result (*StreamCreate)(Stream*, unsigned flags);
  Result (*StreamDestroy)(Stream);
  Result (*StreamWaitEvent)(Stream, Event, unsigned flags);
  Result (*StreamWriteValue32)(Stream, Address, std::uint32_t value, unsigned flags);
  Result (*StreamWaitValue32)(Stream, Address, std::uint32_t value, unsigned flags);
  Result (*StreamIsCapturing)(Stream, int* status);
  Result (*StreamBeginCapture)(Stream, int mode);
  Result (*StreamEndCapture)(Stream, Graph*);
  Result (*GraphDestroy)(Graph);
  Result (*StreamSynchronize)(Stream);
  Result (*EventCreate)(Event*, unsigned flags);
  Result (*EventDestroy)(Event);
  Result (*EventRecord)(Event, Stream);
  Result (*MemHostAlloc)(void** memory, std::size_t bytes, unsigned flags);
  Result (*MemFreeHost)(void* memory);
  Result (*MemAlloc)(Address*, std::size_t bytes);
  Result (*MemFree)(Address);
  Result (*MemsetD8Async)(Address, unsigned char value, std::size_t count, Stream);
  Result (*MemcpyDtoHAsync)(void* to, Address from, std::size_t bytes, Stream);
  Result (*MemcpyHtoDAsync)(Address to, const void* from, std::size_t bytes, Stream);
  Result (*MemcpyDtoDAsync)(Address to, Address from, std::size_t bytes, Stream);
  Result (*PointerGetAttribute)(void* value, int attribute, Address);
  Result (*IpcGetMemHandle)(IpcHandle*, Address);
  Result (*IpcOpenMemHandle)(Address*, IpcHandle, unsigned flags);
  Result (*IpcCloseMemHandle)(Address);
  Result (*ModuleLoadData)(Module*, const void* image);
  Result (*ModuleGetFunction)(Function*, Module, const char* name);
  Result (*LaunchKernel)(Function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                         unsigned block_x, unsigned block_y, unsigned block_z,
                         unsigned shared_bytes, Stream, void** arguments, void** extra);

  int devices = 0;
  int version = 0;  ///< CUDA version, such as 13000.

  /// Throws Error unless `result` is success. The message contains `call` and the driver's error
  /// text.
  void check(Result result, const char* call) const;
};

/// Loads the driver at the first call. Throws InvalidArgument with a one-sentence reason if there
/// is none.
const Driver& driver();

}  // namespace mccl::device::cuda
