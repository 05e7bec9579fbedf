// torch's operators on the double. Views use torch's own code, and copies have a kernel here. All
// other operators run on the CPU, on the device's thread, when the device reaches them.
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/TensorImpl.h>
#include <torch/library.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "gpu.h"

namespace fake_mps {
namespace {

using torch::jit::Stack;
using Memories = MetalDouble::Memories;

bool on_mps(const at::Tensor& tensor) { return tensor.defined() && tensor.device().is_mps(); }

/// Returns a CPU tensor over the same memory, for the device's own thread.
at::Tensor inside(const at::Tensor& tensor, Memories& used) {
  const auto options = tensor.options().device(at::kCPU);
  const auto memory = memory_of(tensor);
  if (!memory) return at::empty_strided(tensor.sizes(), tensor.strides(), options);
  used.push_back(memory);
  std::byte* const data =
      memory->inside() + static_cast<std::size_t>(tensor.storage_offset() * tensor.itemsize());
  return at::from_blob(data, tensor.sizes(), tensor.strides(), options);
}

void encode(const Memories& reads, const Memories& writes, std::function<void()> act) {
  require_thread_of_caller("work for torch's stream");
  count_encoded();
  gpu()->encode(reads, writes, [act = std::move(act)] {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    try {
      act();
    } catch (const std::exception& error) {
      gpu()->record(std::string("an operator failed on the device: ") + error.what());
    }
  });
}

at::Tensor empty(c10::SymIntArrayRef sizes, std::optional<at::ScalarType> type,
                 std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::MPS);
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(sizes),
                                   c10::GetAllocator(c10::DeviceType::MPS), kKeys,
                                   c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides,
                         std::optional<at::ScalarType> type, std::optional<at::Layout>,
                         std::optional<at::Device>, std::optional<bool>) {
  constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::MPS);
  return at::detail::empty_strided_generic(
      C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides),
      c10::GetAllocator(c10::DeviceType::MPS), kKeys, c10::dtype_or_default(type));
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool /*non_blocking*/) {
  if (self.is_same(source) || self.numel() == 0) return self;
  Memories reads;
  Memories writes;
  const at::Tensor from = on_mps(source) ? inside(source, reads) : source.clone();
  if (on_mps(self)) {
    const at::Tensor to = inside(self, writes);
    encode(reads, writes, [to, from] { to.copy_(from); });
  } else {
    encode(reads, {}, [self, from] {
      const at::NoGradGuard no_grad;
      self.copy_(from);
    });
    gpu()->finish();
  }
  return self;
}

at::Scalar local_scalar(const at::Tensor& self) {
  gpu()->finish();
  Memories used;
  return at::_local_scalar_dense(inside(self, used));
}

/// Computes linear_backward from matrix products, because torch's CPU has no operator of this name.
/// The gradient may be a view.
std::tuple<at::Tensor, at::Tensor, at::Tensor> linear_backward(const at::Tensor& input,
                                                               const at::Tensor& gradient,
                                                               const at::Tensor& weight,
                                                               std::array<bool, 3> wanted) {
  const at::Tensor rows = gradient.reshape({-1, gradient.size(-1)});
  std::tuple<at::Tensor, at::Tensor, at::Tensor> found;
  if (wanted[0]) std::get<0>(found) = rows.mm(weight).view(input.sizes());
  if (wanted[1]) std::get<1>(found) = rows.t().mm(input.reshape({-1, input.size(-1)}));
  if (wanted[2]) std::get<2>(found) = rows.sum(0);
  return found;
}

/// Returns `value` with every tensor in it replaced, and with the CPU in place of MPS devices.
template <typename Replace>
c10::IValue with_tensors(const c10::IValue& value, const Replace& replace) {
  if (value.isTensor()) {
    if (!value.toTensor().defined()) return value;
    return replace(value.toTensor());
  }
  if (value.isDevice() && value.toDevice().is_mps()) return c10::Device(at::kCPU);
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(replace(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor && tensor->defined() ? std::optional(replace(*tensor)) : tensor);
    }
    return list;
  }
  return value;
}

struct Call {
  Stack on_cpu;
  Stack outputs;  ///< Null where the operator returns a new tensor.
  Memories reads;
  Memories writes;
};

/// True if the operator writes the argument, or the elements of a list.
bool is_written(const c10::Argument& argument) {
  const auto* const alias = argument.alias_info();
  if (!alias) return false;
  const auto& inner = alias->containedTypes();
  return alias->isWrite() ||
         std::any_of(inner.begin(), inner.end(), [](const auto& one) { return one.isWrite(); });
}

/// Returns the results that are arguments written by the operator, and null for all others.
Stack written_arguments(const c10::FunctionSchema& schema, const Stack& arguments) {
  Stack written;
  for (const auto& result : schema.returns()) {
    written.emplace_back();
    if (!result.alias_info()) continue;
    TORCH_CHECK(result.alias_info()->isWrite(), "fake_mps: ", schema.name(),
                " makes a view; it needs a kernel of its own");
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const auto* const alias = schema.arguments()[i].alias_info();
      if (alias && *alias == *result.alias_info()) written.back() = arguments[i];
    }
  }
  return written;
}

/// Returns the arguments with meta tensors, which have shapes but no data.
Stack meta_of(const Stack& arguments) {
  Stack on_meta;
  for (const c10::IValue& argument : arguments) {
    on_meta.push_back(with_tensors(argument, [](const at::Tensor& tensor) {
      return on_mps(tensor) || tensor.dim() > 0
                 ? at::empty_strided(tensor.sizes(), tensor.strides(),
                                     tensor.options().device(at::kMeta))
                 : tensor;
    }));
  }
  return on_meta;
}

Call prepare(const c10::FunctionSchema& schema, const Stack& arguments) {
  Call call;
  call.outputs = written_arguments(schema, arguments);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    Memories& used = is_written(schema.arguments()[i]) ? call.writes : call.reads;
    call.on_cpu.push_back(with_tensors(arguments[i], [&](const at::Tensor& tensor) {
      if (on_mps(tensor)) return inside(tensor, used);
      at::Tensor copy = tensor.clone();
      const bool is_number = tensor.unsafeGetTensorImpl()->is_wrapped_number();
      copy.unsafeGetTensorImpl()->set_wrapped_number(is_number);
      return copy;
    }));
  }
  return call;
}

at::Tensor tensor_like(const at::Tensor& model) {
  return at::empty_strided(model.sizes(), model.strides(),
                           model.options().device(c10::Device(at::kMPS, 0)));
}

/// Returns a result with the shape of `model`, and appends its CPU views to `targets` to be filled.
c10::IValue result_like(const c10::IValue& model, Memories& writes,
                        std::vector<at::Tensor>& targets) {
  return with_tensors(model, [&](const at::Tensor& tensor) {
    const at::Tensor made = tensor_like(tensor);
    targets.push_back(inside(made, writes));
    return made;
  });
}

void copy_results(const Stack& results, const Stack& outputs,
                  const std::vector<at::Tensor>& targets) {
  auto target = targets.begin();
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!outputs[i].isNone()) continue;
    with_tensors(results[i], [&](const at::Tensor& tensor) {
      (target++)->copy_(tensor);
      return tensor;
    });
  }
}

bool gives_tensors_alone(const c10::FunctionSchema& schema) {
  for (const auto& result : schema.returns()) {
    const auto kind = result.type()->kind();
    if (kind != c10::TypeKind::TensorType && kind != c10::TypeKind::ListType) return false;
  }
  return true;
}

/// Runs an operator whose result shapes depend on the data. Waits for the device, as torch does on
/// a Mac.
Stack run_at_once(const c10::OperatorHandle& op, const Stack& arguments) {
  gpu()->finish();
  Call call = prepare(op.schema(), arguments);
  op.callBoxed(&call.on_cpu);
  Stack results;
  for (std::size_t i = 0; i < call.on_cpu.size(); ++i) {
    if (!call.outputs[i].isNone()) {
      results.push_back(call.outputs[i]);
      continue;
    }
    std::vector<at::Tensor> targets;
    Memories writes;
    results.push_back(result_like(call.on_cpu[i], writes, targets));
    encode({}, writes,
           [from = call.on_cpu[i], targets] { copy_results({from}, {c10::IValue()}, targets); });
  }
  return results;
}

/// Returns results without data, or nullopt if their shapes depend on the data.
std::optional<Stack> shapes_of_results(const c10::OperatorHandle& op, const Stack& arguments) {
  if (!gives_tensors_alone(op.schema())) return std::nullopt;
  Stack on_meta = meta_of(arguments);
  try {
    op.callBoxed(&on_meta);
    return on_meta;
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

/// Resizes outputs that were passed without their final shape.
void shape_outputs(const Stack& outputs, const Stack& shapes) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].isTensor() || !shapes[i].isTensor()) continue;
    const at::Tensor& output = outputs[i].toTensor();
    const auto sizes = shapes[i].toTensor().sizes();
    if (on_mps(output) && output.sizes() != sizes) output.resize_(sizes);
  }
}

Stack run_later(const c10::OperatorHandle& op, const Stack& arguments, const Stack& shapes) {
  shape_outputs(written_arguments(op.schema(), arguments), shapes);
  Call call = prepare(op.schema(), arguments);
  Stack results;
  std::vector<at::Tensor> targets;
  for (std::size_t i = 0; i < call.outputs.size(); ++i) {
    const bool written = !call.outputs[i].isNone();
    results.push_back(written ? call.outputs[i] : result_like(shapes[i], call.writes, targets));
  }
  encode(call.reads, call.writes,
         [op, on_cpu = call.on_cpu, outputs = call.outputs, targets]() mutable {
           op.callBoxed(&on_cpu);
           copy_results(on_cpu, outputs, targets);
         });
  return results;
}

void on_the_device(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, Stack* stack) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto first = stack->end() - static_cast<std::ptrdiff_t>(op.schema().arguments().size());
  const Stack arguments(first, stack->end());
  stack->erase(first, stack->end());
  const std::optional<Stack> shapes = shapes_of_results(op, arguments);
  for (c10::IValue& result :
       shapes ? run_later(op, arguments, *shapes) : run_at_once(op, arguments)) {
    stack->push_back(std::move(result));
  }
}

TORCH_LIBRARY_IMPL(_, MPS, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_the_device>());
}

TORCH_LIBRARY_IMPL(aten, MPS, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("copy_", &copy_);
  m.impl("_local_scalar_dense", &local_scalar);
  m.impl("linear_backward", &linear_backward);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", &at::native::view);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("unfold", &at::native::unfold);
  m.impl("resize_", &at::native::resize_);
  m.impl("set_.source_Storage_storage_offset",
         [](at::Tensor& self, at::Storage source, std::int64_t offset, at::IntArrayRef sizes,
            at::IntArrayRef strides) -> at::Tensor& {
           self.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(source));
           self.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
           return self;
         });
}

}  // namespace
}  // namespace fake_mps
