// Provides torch with GPU memory from the engine's allocator.
#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <cstddef>

#include "backend.h"
#include "mccl/device_memory.h"
#include "mccl/error.h"
#include "process.h"

namespace mccl_torch {
namespace {

mccl::Device gpu(int index) { return {mccl::DeviceKind::cuda, index}; }

/// Returns null if the device is out of memory, so that torch frees its cached memory and retries.
void* take(std::ptrdiff_t bytes, int device, void* /*stream*/) {
  try {
    return mccl::allocate_device_memory(gpu(device), static_cast<std::size_t>(bytes));
  } catch (const mccl::InvalidArgument& error) {
    C10_THROW_ERROR(ValueError, error.what());
  } catch (const mccl::Error&) {
    return nullptr;
  }
}

void give_back(void* memory, std::ptrdiff_t /*bytes*/, int device, void* /*stream*/) {
  try {
    mccl::free_device_memory(gpu(device), memory);
  } catch (const mccl::Error& error) {
    TORCH_WARN("mccl: ", error.what());
  }
}

}  // namespace

std::pair<std::uint64_t, std::uint64_t> memory_functions() {
  return {reinterpret_cast<std::uint64_t>(&take), reinterpret_cast<std::uint64_t>(&give_back)};
}

bool ProcessGroupMCCL::supportsTensorAlloc(c10::DeviceIndex index) {
  return mccl::has_device(gpu(index));
}

/// Allocates from the MemPools of torch that mccl.torch_memory creates.
at::Tensor ProcessGroupMCCL::allocateTensor(long size, at::TensorOptions options) {
  const char* call = "allocate_tensor";
  if (!options.has_device() || !options.device().is_cuda()) {
    invalid_argument(call, c10::str("expected a CUDA device, got ", options.device(),
                                    ": this call allocates memory that other GPUs access"));
  }
  const pybind11::gil_scoped_acquire with_gil;
  const pybind11::object dtype = pybind11::reinterpret_borrow<pybind11::object>(
      reinterpret_cast<PyObject*>(torch::getTHPDtype(options.dtype().toScalarType())));
  return pybind11::module_::import("mccl.torch_memory")
      .attr("empty")(size, dtype, options.device())
      .cast<at::Tensor>();
}

void ProcessGroupMCCL::reach_memory(c10::DeviceIndex index) {
  try {
    group_for("register_mem_pool")->reach_device_memory(gpu(index));
  } catch (const std::exception&) {
    throw_torch_error(std::current_exception(), rank_, "mccl:register_mem_pool");
  }
}

}  // namespace mccl_torch
