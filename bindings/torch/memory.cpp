// Provides torch with memory that collectives use without a copy: GPU memory from the engine's
// allocator, and host memory that the other ranks of the host read.
#include <ATen/ATen.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "backend.h"
#include "mccl/context.h"
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

/// torch gives the CPU no index, so a negative index means the host.
bool ProcessGroupMCCL::supportsTensorAlloc(c10::DeviceIndex index) {
  if (index >= 0) return mccl::has_device(gpu(index));
  const std::shared_ptr<mccl::Context> context = this->context();
  return context && context->config().shared_buffers && !context->costs().nodes.empty();
}

/// If the tensor grows, torch moves it to ordinary memory.
at::Tensor ProcessGroupMCCL::allocate_on_host(const char* call, long size,
                                              const at::TensorOptions& options) {
  const std::shared_ptr<mccl::Context> context = this->context();
  static_cast<void>(group_for(call));  // throws if the group was shut down
  TORCH_CHECK_WITH(DistBackendError, context, "[rank ", rank_, "] ", call,
                   ": the group was reconfigured meanwhile; call it again");
  const c10::ScalarType type = options.dtype().toScalarType();
  if (c10::isQIntType(type))
    invalid_argument(call,
                     c10::str(type, " is quantized; expected elements that are plain memory"));
  const std::size_t element = options.dtype().itemsize();
  if (static_cast<std::size_t>(size) > std::numeric_limits<std::int64_t>::max() / element)
    invalid_argument(call, c10::str("a tensor of ", size, " elements is too large"));
  try {
    const std::size_t bytes = static_cast<std::size_t>(size) * element;
    auto memory = std::make_unique<std::shared_ptr<std::byte>>(context->allocate(bytes));
    std::byte* const data = memory->get();
    return at::for_blob(data, {size})
        .context(memory.release(),
                 [](void* held) { delete static_cast<std::shared_ptr<std::byte>*>(held); })
        .resizeable_storage()
        .allocator(c10::GetCPUAllocator())
        .options(options.device(c10::kCPU))  // torch gives the CPU no index
        .make_tensor();
  } catch (const mccl::Error&) {
    throw_torch_error(std::current_exception(), rank_, "mccl:allocate_tensor");
  }
}

/// GPU memory comes from the MemPools of torch that mccl.torch_memory creates.
at::Tensor ProcessGroupMCCL::allocateTensor(long size, at::TensorOptions options) {
  const char* call = "allocate_tensor";
  if (size < 0) invalid_argument(call, c10::str("the size is negative: ", size));
  if (options.device().is_cpu()) return allocate_on_host(call, size, options);
  if (!options.device().is_cuda()) {
    invalid_argument(call, c10::str("expected the CPU or a CUDA device, got ", options.device(),
                                    ": this call allocates memory that other ranks access"));
  }
  const pybind11::gil_scoped_acquire with_gil;
  const pybind11::object dtype = pybind11::reinterpret_borrow<pybind11::object>(
      reinterpret_cast<PyObject*>(torch::getTHPDtype(options.dtype().toScalarType())));
  return pybind11::module_::import("mccl.torch_memory")
      .attr("empty_in_pool")(size, dtype, options.device())
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
