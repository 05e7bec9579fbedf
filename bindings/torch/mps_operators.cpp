// MPS kernels for torch's collective operators (c10d::allreduce_ and so on), for which torch has
// none.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <string>

#include "mps.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace mccl_torch {
namespace {

/// Operator that gets no MPS kernel: Python offers it only for gloo on CPU tensors.
constexpr const char* kOfTheCpuAlone = "c10d::monitored_barrier_";

/// Returns a process group whose CPU backend is the MPS backend of `group`.
c10::intrusive_ptr<c10d::ProcessGroup> seen_from_the_cpu(
    const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  auto seen = c10::make_intrusive<c10d::ProcessGroup>(group->getRank(), group->getSize());
  const auto backend = group->getBackend(c10::DeviceType::MPS);
  // setBackend() overwrites the backend's bound device with the group's and changes nothing else.
  if (const auto bound = backend->getBoundDeviceId()) seen->setBoundDeviceId(*bound);
  seen->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM, backend);
  return seen;
}

/// Redispatches to torch's CPU kernel, which only forwards to the group's backend. These kernels do
/// not read the tensors in any version of torch, so they work for MPS.
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
