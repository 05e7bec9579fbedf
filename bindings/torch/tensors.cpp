#include "tensors.h"

#include <ATen/MemoryOverlap.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>

#include "mps.h"
#include "torch/csrc/distributed/c10d/Utils.hpp"

namespace mccl_torch {
namespace {

std::optional<mccl::DType> dtype_of(at::ScalarType type) {
  using mccl::DType;
  constexpr std::pair<at::ScalarType, DType> kTypes[] = {
      {at::kBool, DType::boolean},      {at::kByte, DType::u8},
      {at::kChar, DType::i8},           {at::kUInt16, DType::u16},
      {at::kShort, DType::i16},         {at::kUInt32, DType::u32},
      {at::kInt, DType::i32},           {at::kUInt64, DType::u64},
      {at::kLong, DType::i64},          {at::kHalf, DType::f16},
      {at::kBFloat16, DType::bf16},     {at::kFloat, DType::f32},
      {at::kDouble, DType::f64},        {at::kComplexFloat, DType::c64},
      {at::kComplexDouble, DType::c128}};
  for (const auto& [scalar, found] : kTypes)
    if (scalar == type) return found;
  return std::nullopt;
}

/// True if the engine can use the tensor's own memory, without a copy.
bool is_plain(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

at::Tensor contiguous_copy(const at::Tensor& tensor) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return tensor.resolve_conj().resolve_neg().contiguous();
}

at::Tensor contiguous_like(const at::Tensor& tensor) {
  return at::empty(tensor.sizes(), tensor.options().memory_format(at::MemoryFormat::Contiguous));
}

/// True if the tensors are consecutive in one storage.
bool is_consecutive(const std::vector<at::Tensor>& tensors) {
  const char* next = nullptr;
  for (const auto& tensor : tensors) {
    if (!is_plain(tensor)) return false;
    if (!tensor.storage().is_alias_of(tensors.front().storage())) return false;
    const auto* data = static_cast<const char*>(tensor.const_data_ptr());
    if (next != nullptr && data != next) return false;
    next = data + tensor.nbytes();
  }
  return next != nullptr;
}

std::size_t total_bytes(const std::vector<at::Tensor>& tensors) {
  std::size_t bytes = 0;
  for (const auto& tensor : tensors) bytes += tensor.nbytes();
  return bytes;
}

/// Views of consecutive pieces of `flat` with the shapes of `tensors`.
std::vector<at::Tensor> pieces_of(const at::Tensor& flat, const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> pieces;
  pieces.reserve(tensors.size());
  std::int64_t offset = 0;
  for (const auto& tensor : tensors) {
    pieces.push_back(flat.narrow(0, offset, tensor.numel()).view(tensor.sizes()));
    offset += tensor.numel();
  }
  return pieces;
}

void copy_without_autograd(const at::Tensor& destination, const at::Tensor& source) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  destination.copy_(source);
}

at::TensorOptions bytes_beside(const at::Tensor& tensor) {
  return at::TensorOptions().dtype(at::kByte).device(tensor.device());
}

constexpr ElementType kBytes{mccl::DType::u8, 1};

/// Bytes that a tensor takes in a buffer of several types, padded so that the next tensor is
/// aligned.
std::size_t padded_bytes(const at::Tensor& tensor) {
  constexpr std::size_t kAlignment = 16;
  return (tensor.nbytes() + kAlignment - 1) / kAlignment * kAlignment;
}

at::Tensor padded_temporary(const std::vector<at::Tensor>& tensors) {
  std::size_t bytes = 0;
  for (const auto& tensor : tensors) bytes += padded_bytes(tensor);
  return at::zeros({static_cast<std::int64_t>(bytes)}, bytes_beside(tensors.front()));
}

}  // namespace

void invalid_argument(const char* call, const std::string& what) {
  C10_THROW_ERROR(ValueError, c10::str("ProcessGroupMCCL::", call, ": ", what));
}

ElementType movable_type(at::ScalarType type) {
  if (const auto dtype = dtype_of(type)) return {*dtype, 1};
  return {mccl::DType::u8, c10::elementSize(type)};
}

mccl::DType reducible_type(const char* call, at::ScalarType type, const mccl::ReduceOp& op) {
  const auto dtype = dtype_of(type);
  if (!dtype) {
    invalid_argument(call, c10::str("invalid tensor type: ", type,
                                    " cannot be reduced (expected bool, an integer, Half, "
                                    "BFloat16, Float, Double or a complex type); convert first"));
  }
  if (!mccl::supports(*dtype, op.kind)) {
    invalid_argument(
        call, c10::str("invalid tensor type: ReduceOp ", std::string(mccl::name_of(op.kind)),
                       " does not take ", type,
                       " (bitwise operations take integers and bool, min and max anything but "
                       "complex, avg anything but bool, premul_sum floats and complex)"));
  }
  return *dtype;
}

mccl::ReduceOp reduce_op_of(const char* call, const c10d::ReduceOp& op) {
  using mccl::ReduceKind;
  using Op = c10d::ReduceOp;
  constexpr std::pair<Op::RedOpType, ReduceKind> kKinds[] = {
      {Op::SUM, ReduceKind::sum}, {Op::AVG, ReduceKind::avg},  {Op::PRODUCT, ReduceKind::product},
      {Op::MIN, ReduceKind::min}, {Op::MAX, ReduceKind::max},  {Op::BAND, ReduceKind::band},
      {Op::BOR, ReduceKind::bor}, {Op::BXOR, ReduceKind::bxor}};
  for (const auto& [of_torch, kind] : kKinds)
    if (of_torch == op.op_) return kind;
  if (op.op_ != Op::PREMUL_SUM)
    invalid_argument(call,
                     "unknown ReduceOp (expected SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR or "
                     "PREMUL_SUM)");
  if (!op.supplement_) invalid_argument(call, "ReduceOp PREMUL_SUM has no factor");
  const auto* factor = static_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  const double value = factor->tensor_factor.defined() ? factor->tensor_factor.item().to<double>()
                                                       : factor->double_factor;
  return {ReduceKind::premul_sum, value};
}

void require_host_memory(const char* call, const at::Tensor& tensor) {
  if (tensor.device().is_cpu()) return;
  invalid_argument(call, c10::str("expected a CPU tensor, got one on ", tensor.device(),
                                  ": this call takes CPU tensors only; use tensor.cpu()"));
}

void require_dense(const char* call, const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided) {
    invalid_argument(call, c10::str("only supports dense tensors (invalid tensor layout: expected ",
                                    at::kStrided, ", got ", tensor.layout(), ")"));
  }
  if (tensor.device().is_cpu() || tensor.device().is_cuda() || tensor.device().is_mps()) return;
  invalid_argument(
      call, c10::str("expected a tensor on the CPU, a CUDA device or MPS, got one on ",
                     tensor.device(), ": use tensor.cpu(), or another backend for this device"));
}

at::Tensor& require_single(const char* call, std::vector<at::Tensor>& tensors, const char* role) {
  if (tensors.size() != 1) {
    invalid_argument(call, c10::str("requires a single-element ", role, " list (got ",
                                    tensors.size(), " tensors)"));
  }
  require_dense(call, tensors.front());
  return tensors.front();
}

void require_same_type(const char* call, const at::Tensor& like,
                       const std::vector<at::Tensor>& tensors) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    require_dense(call, tensors[i]);
    if (tensors[i].scalar_type() != like.scalar_type()) {
      invalid_argument(call, c10::str("invalid tensor type at index ", i, " (expected ",
                                      like.toString(), ", got ", tensors[i].toString(), ")"));
    }
    if (tensors[i].device() != like.device()) {
      invalid_argument(call, c10::str("invalid tensor device at index ", i, " (expected ",
                                      like.device(), ", got ", tensors[i].device(), ")"));
    }
  }
}

mccl::Buffer TensorStaging::buffer_of(const at::Tensor& contiguous, ElementType type) {
  keep(contiguous);
  return buffer_at(contiguous, static_cast<std::size_t>(contiguous.numel()) * type.units,
                   type.dtype);
}

mccl::Buffer TensorStaging::buffer_at(const at::Tensor& first, std::size_t count,
                                      mccl::DType dtype) {
  mccl::Buffer buffer;
  if (first.device().is_mps()) {
    buffer = mccl::metal_buffer(metal_place_of(first), count, dtype);
  } else {
    buffer = {first.data_ptr(), count, dtype};
    if (first.is_cuda()) buffer.device = {mccl::DeviceKind::cuda, first.device().index()};
  }
  given_.push_back({buffer.data, first});
  return buffer;
}

mccl::Buffer TensorStaging::buffer_of_consecutive(const std::vector<at::Tensor>& tensors,
                                                  ElementType type) {
  for (const auto& tensor : tensors) keep(tensor);
  return buffer_at(tensors.front(), total_bytes(tensors) / mccl::size_of(type.dtype), type.dtype);
}

mccl::ConstBuffer TensorStaging::input(const at::Tensor& tensor, ElementType type) {
  return buffer_of(is_plain(tensor) ? tensor : contiguous_copy(tensor), type);
}

mccl::Buffer TensorStaging::output(const at::Tensor& tensor, ElementType type) {
  if (is_plain(tensor)) return buffer_of(tensor, type);
  at::assert_no_internal_overlap(tensor);
  require_written_as_it_lies(call_, tensor);
  const at::Tensor temporary = contiguous_like(tensor);
  copies_.emplace_back(tensor, temporary);
  return buffer_of(temporary, type);
}

mccl::Buffer TensorStaging::in_place(const at::Tensor& tensor, ElementType type) {
  const mccl::Buffer buffer = output(tensor, type);
  if (!is_plain(tensor)) copy_without_autograd(copies_.back().second, tensor);
  return buffer;
}

at::Tensor TensorStaging::flat_temporary(const std::vector<at::Tensor>& tensors) {
  std::int64_t total = 0;
  for (const auto& tensor : tensors) total += tensor.numel();
  const at::Tensor& first = tensors.front();
  return at::empty({total}, at::TensorOptions().dtype(first.scalar_type()).device(first.device()));
}

mccl::ConstBuffer TensorStaging::input(const std::vector<at::Tensor>& tensors, ElementType type) {
  if (tensors.size() == 1) return input(tensors.front(), type);
  if (is_consecutive(tensors)) return buffer_of_consecutive(tensors, type);
  const at::Tensor flat = flat_temporary(tensors);
  const auto pieces = pieces_of(flat, tensors);
  for (std::size_t i = 0; i < tensors.size(); ++i) copy_without_autograd(pieces[i], tensors[i]);
  return buffer_of(flat, type);
}

mccl::Buffer TensorStaging::output(const std::vector<at::Tensor>& tensors, ElementType type) {
  if (tensors.size() == 1) return output(tensors.front(), type);
  if (is_consecutive(tensors)) return buffer_of_consecutive(tensors, type);
  for (const auto& tensor : tensors) {
    at::assert_no_internal_overlap(tensor);
    require_written_as_it_lies(call_, tensor);
  }
  const at::Tensor flat = flat_temporary(tensors);
  const auto pieces = pieces_of(flat, tensors);
  for (std::size_t i = 0; i < tensors.size(); ++i) copies_.emplace_back(tensors[i], pieces[i]);
  return buffer_of(flat, type);
}

mccl::Buffer TensorStaging::in_place(const std::vector<at::Tensor>& tensors, ElementType type) {
  if (tensors.size() == 1) return in_place(tensors.front(), type);
  const std::size_t first_copy = copies_.size();
  const mccl::Buffer buffer = output(tensors, type);
  for (std::size_t i = first_copy; i < copies_.size(); ++i) {
    const auto& [destination, source] = copies_[i];
    copy_without_autograd(source, destination);
  }
  return buffer;
}

mccl::ConstBuffer TensorStaging::input_bytes(const std::vector<at::Tensor>& tensors) {
  const at::Tensor flat = padded_temporary(tensors);
  std::int64_t next = 0;
  for (const auto& tensor : tensors) {
    const at::Tensor plain = is_plain(tensor) ? tensor : contiguous_copy(tensor);
    const auto bytes = static_cast<std::int64_t>(plain.nbytes());
    if (bytes != 0) {
      copy_without_autograd(flat.narrow(0, next, bytes), plain.view({-1}).view(at::kByte));
    }
    next += static_cast<std::int64_t>(padded_bytes(plain));
  }
  return buffer_of(flat, kBytes);
}

mccl::Buffer TensorStaging::output_bytes(const std::vector<at::Tensor>& tensors) {
  const at::Tensor flat = padded_temporary(tensors);
  std::int64_t next = 0;
  for (const auto& tensor : tensors) {
    at::assert_no_internal_overlap(tensor);
    require_written_as_it_lies(call_, tensor);
    const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
    const at::Tensor piece = flat.narrow(0, next, bytes).view(tensor.scalar_type());
    copies_.emplace_back(tensor, piece.view(tensor.sizes()));
    next += static_cast<std::int64_t>(padded_bytes(tensor));
  }
  return buffer_of(flat, kBytes);
}

mccl::ConstBuffer TensorStaging::apart_from(mccl::ConstBuffer in, mccl::ConstBuffer out,
                                            std::size_t slot) {
  if (in.data == static_cast<const char*>(out.data) + slot) return in;
  return apart_from(in, out);
}

mccl::ConstBuffer TensorStaging::apart_from(mccl::ConstBuffer in, mccl::ConstBuffer out) {
  const auto* a = static_cast<const char*>(in.data);
  const auto* b = static_cast<const char*>(out.data);
  if (in.bytes() == 0 || out.bytes() == 0) return in;
  if (a + in.bytes() <= b || b + out.bytes() <= a) return in;
  const auto found = std::find_if(given_.begin(), given_.end(),
                                  [&](const Given& one) { return one.data == in.data; });
  TORCH_INTERNAL_ASSERT(found != given_.end());
  const at::Tensor first = found->tensor;
  const auto elements = static_cast<std::int64_t>(in.bytes() / first.itemsize());
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::Tensor copy =
      first.detach().as_strided({elements}, {1}, first.storage_offset()).clone();
  keep(copy);
  return buffer_at(copy, in.count, in.dtype);
}

void TensorStaging::keep(const at::Tensor& tensor) {
  if (tensor.is_cuda()) device_ = tensor.device();
  on_mps_ = on_mps_ || tensor.device().is_mps();
  kept_.push_back(tensor);
}

void TensorStaging::finish() {
  for (const auto& [destination, source] : copies_) {
    if (destination.device().is_mps()) {
      copy_beside_torch(destination, source);
    } else {
      copy_without_autograd(destination, source);
    }
  }
  if (then_) then_();
}

void TensorStaging::release() {
  copies_.clear();
  kept_.clear();
  given_.clear();
  then_ = nullptr;
}

std::vector<std::size_t> counts_of(const std::vector<at::Tensor>& tensors, ElementType type) {
  std::vector<std::size_t> counts;
  counts.reserve(tensors.size());
  for (const auto& tensor : tensors) {
    counts.push_back(static_cast<std::size_t>(tensor.numel()) * type.units);
  }
  return counts;
}

bool all_equal(const std::vector<std::size_t>& counts) {
  return std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end();
}

}  // namespace mccl_torch
