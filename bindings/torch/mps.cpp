#include "mps.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/MPSHooksInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "mccl/error.h"
#include "tensors.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace mccl_torch {
namespace {

/// A fence that uses an event of torch. A query of the event only reads a counter, so any thread
/// may poll the fence.
class EventOfTorch final : public mccl::Fence {
 public:
  EventOfTorch() : hooks_(at::detail::getMPSHooks()), event_(hooks_.acquireEvent(false)) {
    try {
      hooks_.recordEvent(event_);
    } catch (...) {
      hooks_.releaseEvent(event_);
      throw;
    }
  }
  ~EventOfTorch() override { hooks_.releaseEvent(event_); }
  EventOfTorch(const EventOfTorch&) = delete;
  EventOfTorch& operator=(const EventOfTorch&) = delete;

  bool passed() override {
    if (!passed_) passed_ = hooks_.queryEvent(event_);
    return passed_;
  }

 private:
  const at::MPSHooksInterface& hooks_;
  const std::uint32_t event_;
  std::atomic<bool> passed_{false};
};

/// Division of a tensor into runs of elements that are consecutive in memory: the length of a run,
/// and the dimensions, outermost first, over which runs repeat.
struct Runs {
  explicit Runs(const at::Tensor& tensor) {
    for (std::int64_t d = 0; d < tensor.dim(); ++d) {
      if (tensor.size(d) != 1) dimensions.push_back(d);
    }
    while (!dimensions.empty() && tensor.stride(dimensions.back()) == length) {
      length *= tensor.size(dimensions.back());
      dimensions.pop_back();
    }
  }
  std::int64_t length = 1;
  std::vector<std::int64_t> dimensions;
};

/// Copies `from` to `to` on the GPU, one run of consecutive elements at a time.
void copy_runs(const at::Tensor& to, const at::Tensor& from) {
  constexpr std::size_t kAtOnce = 4096;
  const Runs runs(to);
  const auto element = static_cast<std::size_t>(to.itemsize());
  const std::size_t bytes = static_cast<std::size_t>(runs.length) * element;
  const mccl::MetalPlace target = metal_place_of(to);
  mccl::MetalPlace source = metal_place_of(from);
  std::vector<mccl::MetalCopy> copies;
  std::vector<std::int64_t> at(runs.dimensions.size(), 0);
  for (std::int64_t left = to.numel(); left > 0; left -= runs.length) {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < at.size(); ++d) offset += at[d] * to.stride(runs.dimensions[d]);
    copies.push_back({source,
                      {target.buffer, target.offset + static_cast<std::size_t>(offset) * element},
                      bytes});
    source.offset += bytes;
    for (std::size_t d = at.size(); d-- > 0;) {
      if (++at[d] < to.size(runs.dimensions[d])) break;
      at[d] = 0;
    }
    if (copies.size() == kAtOnce || left == runs.length) {
      mccl::metal_copy(copies);
      copies.clear();
    }
  }
}

/// Returns a CPU tensor that shares the memory of `tensor`. The host may use it only while no GPU
/// work uses that memory. Returns std::nullopt if the memory is private to the GPU.
std::optional<at::Tensor> seen_by_host(const at::Tensor& tensor) {
  const mccl::Buffer first = mccl::metal_buffer(metal_place_of(tensor), 1, mccl::DType::u8);
  if (first.device.kind != mccl::DeviceKind::cpu) return std::nullopt;
  return at::from_blob(first.data, tensor.sizes(), tensor.strides(),
                       tensor.options().device(at::kCPU));
}

/// Operator for which no MPS kernel is registered, because Python offers it only for gloo on CPU
/// tensors.
constexpr const char* kOfTheCpuAlone = "c10d::monitored_barrier_";

/// Returns a process group whose CPU backend is the MPS backend of `group`.
c10::intrusive_ptr<c10d::ProcessGroup> seen_from_the_cpu(
    const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  auto seen = c10::make_intrusive<c10d::ProcessGroup>(group->getRank(), group->getSize());
  const auto backend = group->getBackend(c10::DeviceType::MPS);
  // setBackend() sets the backend's bound device to that of the group, so give the group the same
  // device first.
  if (const auto bound = backend->getBoundDeviceId()) seen->setBoundDeviceId(*bound);
  seen->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM, backend);
  return seen;
}

/// Calls torch's CPU kernel of the operator, which only forwards to the group's backend. The
/// kernels do not read the tensors, in any version of torch, so they also work for MPS tensors.
void as_on_the_cpu(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/,
                   torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  auto value = stack->end() - static_cast<std::ptrdiff_t>(arguments.size());
  for (const c10::Argument& argument : arguments) {
    if (argument.type()->str().ends_with(".ProcessGroup")) {
      *value = seen_from_the_cpu(value->toCustomClass<c10d::ProcessGroup>());
    }
    ++value;
  }
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
}

bool lacks_mps(const c10::OperatorName& name) {
  if (!name.name.starts_with("c10d::") || name.name == kOfTheCpuAlone) return false;
  const auto op = c10::Dispatcher::singleton().findSchema(name);
  return op && op->hasKernelForDispatchKey(c10::DispatchKey::CPU) &&
         !op->hasKernelForDispatchKey(c10::DispatchKey::MPS);
}

}  // namespace

std::shared_ptr<mccl::Fence> fence_of_mps() {
  const c10::impl::VirtualGuardImpl guard(c10::DeviceType::MPS);
  const c10::Device device(c10::DeviceType::MPS, 0);
  if (guard.getStream(device).id() != guard.getDefaultStream(device).id()) {
    throw mccl::InvalidArgument(
        "torch's current stream is not the default stream of MPS, and torch supports events only "
        "on the default stream; make the call outside `with torch.mps.stream(...)`");
  }
  return std::make_shared<EventOfTorch>();
}

bool mps_is_used() {
  static std::atomic<bool> is_used = false;
  if (!is_used) {
    const at::MPSHooksInterface& hooks = at::detail::getMPSHooks();
    is_used = hooks.hasMPS() && hooks.getCurrentAllocatedMemory() > 0;
  }
  return is_used;
}

/// On MPS, the data pointer of a storage of torch points to the MTLBuffer object.
mccl::MetalPlace metal_place_of(const at::Tensor& tensor) {
  return {tensor.storage().mutable_data(), static_cast<std::size_t>(tensor.storage_offset()) *
                                               static_cast<std::size_t>(tensor.itemsize())};
}

void require_written_as_it_lies(const char* call, const at::Tensor& tensor) {
  if (!tensor.device().is_mps() || (!tensor.is_conj() && !tensor.is_neg())) return;
  invalid_argument(call,
                   "an output on MPS is a conjugate or negative view, which only torch's own "
                   "stream can write; pass its resolve_conj() or resolve_neg()");
}

void resize_storage(c10::Storage storage, std::int64_t bytes) {
  TORCH_CHECK(bytes >= 0, "resize_: the size must be at least 0 bytes, got ", bytes);
  TORCH_CHECK(storage.resizable(), "resize_: this storage cannot be resized");
  const auto options = at::TensorOptions().dtype(at::kByte).device(storage.device());
  const auto before = static_cast<std::int64_t>(storage.nbytes());
  const at::Tensor fresh = at::empty({bytes}, options);
  if (const std::int64_t kept = std::min(before, bytes); kept > 0) {
    fresh.narrow(0, 0, kept).copy_(at::empty({0}, options).set_(storage, 0, {kept}, {1}));
  }
  c10::StorageImpl* const impl = storage.unsafeGetStorageImpl();
  impl->set_data_ptr_noswap(fresh.storage().unsafeGetStorageImpl()->set_data_ptr({}));
  impl->set_nbytes(static_cast<std::size_t>(bytes));
}

void copy_beside_torch(const at::Tensor& to, const at::Tensor& from) {
  if (to.numel() == 0) return;
  const std::optional<at::Tensor> target = seen_by_host(to);
  const std::optional<at::Tensor> source = target ? seen_by_host(from) : std::nullopt;
  if (!source) return copy_runs(to, from);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  target->copy_(*source);
}

void register_mps_operators() {
  static auto* const library =
      new torch::Library(torch::Library::IMPL, "c10d", c10::DispatchKey::MPS, __FILE__, __LINE__);
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (!lacks_mps(name)) continue;
    const std::string plain = name.name.substr(std::string("c10d::").size());
    const std::string full = name.overload_name.empty() ? plain : plain + "." + name.overload_name;
    library->impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&as_on_the_cpu>());
  }
}

}  // namespace mccl_torch
