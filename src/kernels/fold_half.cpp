// Reductions of f16 and bf16, computed in f32 and rounded once at the end.
#include <array>

#include "kernels/fold.h"
#include "kernels/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fold_half.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/float_ops-inl.h"
#include "kernels/half-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mccl::kernels::HWY_NAMESPACE {

constexpr std::size_t kHalfBytes = 2;

void fold_half_vectors(DType dtype, ReduceKind kind, const FoldArguments& arguments) {
  if (dtype == DType::f16) return fold_floats<float>(F16Lanes(), kind, arguments, kHalfBytes);
  fold_floats<float>(Bf16Lanes(), kind, arguments, kHalfBytes);
}

void scale_half_vectors(DType dtype, const FoldArguments& arguments, double factor) {
  const ScaleFloat<float> op(factor);
  if (dtype == DType::f16) return fold_loop(F16Lanes(), op, arguments, kHalfBytes);
  fold_loop(Bf16Lanes(), op, arguments, kHalfBytes);
}

}  // namespace mccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mccl::kernels {

HWY_EXPORT(fold_half_vectors);
HWY_EXPORT(scale_half_vectors);

void fold_half(DType dtype, ReduceKind kind, const FoldArguments& arguments) {
  HWY_DYNAMIC_DISPATCH(fold_half_vectors)(dtype, kind, arguments);
}

void scale_half(DType dtype, const void* src, void* dst, std::size_t n, double factor) {
  const std::array<const void*, 1> operands = {src};
  HWY_DYNAMIC_DISPATCH(scale_half_vectors)(dtype, {operands, dst, n}, factor);
}

}  // namespace mccl::kernels
#endif  // HWY_ONCE
