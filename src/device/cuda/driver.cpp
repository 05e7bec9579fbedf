#include "device/cuda/driver.h"

#include <fmt/format.h>

#include "mccl/error.h"

namespace mccl::device::cuda {
namespace {

std::string said_by(const CudaDriver& cu, Result result) {
  const char* name = nullptr;
  const char* text = nullptr;
  cu.GetErrorName(result, &name);
  cu.GetErrorString(result, &text);
  return fmt::format("{} ({})", name ? name : fmt::format("error {}", result),
                     text ? text : "the driver gives no description");
}

CudaDriver load() {
  try {
    CudaDriver cu;
    for (const Result result :
         {cu.Init(0), cu.DriverGetVersion(&cu.version), cu.DeviceGetCount(&cu.devices)}) {
      if (result == 0) continue;
      throw InvalidArgument(fmt::format("the CUDA driver finds no GPU: {}", said_by(cu, result)));
    }
    return cu;
  } catch (const LoadError& error) {
    if (error.symbol().empty())
      throw InvalidArgument(fmt::format("this host has no CUDA driver ({})", error.what()));
    throw InvalidArgument(fmt::format(
        "the CUDA driver libcuda.so.1 lacks the function {}: install a driver for CUDA 12 or newer",
        error.symbol()));
  }
}

}  // namespace

void CudaDriver::check(Result result, const char* call) const {
  if (result == 0) return;
  throw Error(fmt::format("CUDA: {} failed: {}", call, said_by(*this, result)));
}

const CudaDriver& driver() { return loaded_once<load>(); }

}  // namespace mccl::device::cuda
