// A substitute for libcuda.so.1 with the functions that the engine calls apart from work on
// streams: GPUs, each with a context. DeviceDouble simulates the streams and memory.
#include <cstdlib>
#include <cstring>

extern "C" {

using Result = int;
constexpr Result kNotSupported = 801;

int mccl_double_gpus = 2;

static void* current = nullptr;

Result cuInit(unsigned) { return mccl_double_gpus > 0 ? 0 : 100; }
Result cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
Result cuGetErrorName(Result result, const char** name) {
  *name = result == 100 ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_NOT_SUPPORTED";
  return 0;
}
Result cuGetErrorString(Result, const char** text) {
  *text = "as the double says";
  return 0;
}
Result cuDeviceGetCount(int* count) {
  *count = mccl_double_gpus;
  return 0;
}
Result cuDeviceGet(int* device, int index) {
  *device = index;
  return 0;
}
Result cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = reinterpret_cast<char*>(&mccl_double_gpus) + device;
  return 0;
}
Result cuCtxGetCurrent(void** context) {
  *context = current;
  return 0;
}
Result cuCtxPushCurrent_v2(void* context) {
  current = context;
  return 0;
}
Result cuCtxPopCurrent_v2(void** context) {
  *context = current;
  current = nullptr;
  return 0;
}

#define MCCL_NOT_SUPPORTED(name) \
  Result name() { return kNotSupported; }
MCCL_NOT_SUPPORTED(cuDeviceGetName)
MCCL_NOT_SUPPORTED(cuDeviceGetAttribute)
MCCL_NOT_SUPPORTED(cuDeviceGetPCIBusId)
MCCL_NOT_SUPPORTED(cuDeviceGetByPCIBusId)
MCCL_NOT_SUPPORTED(cuDeviceGetP2PAttribute)
MCCL_NOT_SUPPORTED(cuCtxSynchronize)
MCCL_NOT_SUPPORTED(cuStreamCreate)
MCCL_NOT_SUPPORTED(cuStreamDestroy_v2)
MCCL_NOT_SUPPORTED(cuStreamWaitEvent)
MCCL_NOT_SUPPORTED(cuStreamWriteValue32_v2)
MCCL_NOT_SUPPORTED(cuStreamWaitValue32_v2)
MCCL_NOT_SUPPORTED(cuStreamIsCapturing)
MCCL_NOT_SUPPORTED(cuStreamBeginCapture_v2)
MCCL_NOT_SUPPORTED(cuStreamEndCapture)
MCCL_NOT_SUPPORTED(cuGraphDestroy)
MCCL_NOT_SUPPORTED(cuStreamSynchronize)
MCCL_NOT_SUPPORTED(cuEventCreate)
MCCL_NOT_SUPPORTED(cuEventDestroy_v2)
MCCL_NOT_SUPPORTED(cuEventRecord)
MCCL_NOT_SUPPORTED(cuMemHostAlloc)
MCCL_NOT_SUPPORTED(cuMemFreeHost)
MCCL_NOT_SUPPORTED(cuMemAlloc_v2)
MCCL_NOT_SUPPORTED(cuMemFree_v2)
MCCL_NOT_SUPPORTED(cuMemsetD8Async)
MCCL_NOT_SUPPORTED(cuMemcpyDtoHAsync_v2)
MCCL_NOT_SUPPORTED(cuMemcpyHtoDAsync_v2)
MCCL_NOT_SUPPORTED(cuPointerGetAttribute)
MCCL_NOT_SUPPORTED(cuIpcGetMemHandle)
MCCL_NOT_SUPPORTED(cuIpcOpenMemHandle_v2)
MCCL_NOT_SUPPORTED(cuModuleLoadData)
MCCL_NOT_SUPPORTED(cuModuleGetFunction)
MCCL_NOT_SUPPORTED(cuLaunchKernel)
}
