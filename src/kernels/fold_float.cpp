// Reductions of floats, and of the complex types made of them. f16 and bf16 are computed in f32 and
// rounded once at the end.
#include <array>
#include <cstring>

#include "kernels/fold.h"
#include "kernels/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fold_float.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/float_ops-inl.h"
#include "kernels/half-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mccl::kernels::HWY_NAMESPACE {

/// Processes complex numbers, with real and imaginary parts in separate vectors.
template <class T>
struct ComplexLanes {
  using D = hn::ScalableTag<T>;
#if HWY_TARGET == HWY_EMU128
  static constexpr std::size_t kPairs = 2 * 16 / sizeof(T);
#endif
  struct Values {
    hn::Vec<D> re;
    hn::Vec<D> im;
  };

  HWY_INLINE std::size_t step() const { return 2 * hn::Lanes(D()) * sizeof(T); }
  HWY_INLINE Values load(const std::uint8_t* from) const {
#if HWY_TARGET == HWY_SCALAR
    return {load_at(D(), from), load_at(D(), from + sizeof(T))};
#else
    Values v{hn::Zero(D()), hn::Zero(D())};
#if HWY_TARGET == HWY_EMU128  // this target accepts aligned elements only
    alignas(16) T pairs[kPairs];
    std::memcpy(pairs, from, sizeof pairs);
    hn::LoadInterleaved2(D(), pairs, v.re, v.im);
#else
    hn::LoadInterleaved2(D(), reinterpret_cast<const T*>(from), v.re, v.im);
#endif
    return v;
#endif
  }
  HWY_INLINE void store(Values v, std::uint8_t* to) const {
#if HWY_TARGET == HWY_SCALAR
    store_at(v.re, D(), to);
    store_at(v.im, D(), to + sizeof(T));
#else
#if HWY_TARGET == HWY_EMU128
    alignas(16) T pairs[kPairs];
    hn::StoreInterleaved2(v.re, v.im, D(), pairs);
    std::memcpy(to, pairs, sizeof pairs);
#else
    hn::StoreInterleaved2(v.re, v.im, D(), reinterpret_cast<T*>(to));
#endif
#endif
  }
  template <class Op>
  HWY_INLINE Values combine(const Op&, Values a, Values b) const {
    return {hn::Sub(hn::Mul(a.re, b.re), hn::Mul(a.im, b.im)),
            hn::Add(hn::Mul(a.re, b.im), hn::Mul(a.im, b.re))};
  }
  template <class Op>
  HWY_INLINE Values finish(const Op&, Values v) const {
    return {one_nan(v.re), one_nan(v.im)};
  }
};

struct ProductComplex {};

void fold_float_vectors(DType dtype, ReduceKind kind, const FoldArguments& arguments) {
  if (dtype == DType::f32) {
    return fold_floats<float>(WordLanes<float>(), kind, arguments, sizeof(float));
  }
  fold_floats<double>(WordLanes<double>(), kind, arguments, sizeof(double));
}

void multiply_complex(DType dtype, const FoldArguments& arguments) {
  if (dtype == DType::c64) {
    return fold_loop(ComplexLanes<float>(), ProductComplex(), arguments, 2 * sizeof(float));
  }
  fold_loop(ComplexLanes<double>(), ProductComplex(), arguments, 2 * sizeof(double));
}

void scale_float_vectors(DType dtype, const FoldArguments& arguments, double factor) {
  if (dtype == DType::f32) {
    return fold_loop(WordLanes<float>(), ScaleFloat<float>(factor), arguments, sizeof(float));
  }
  fold_loop(WordLanes<double>(), ScaleFloat<double>(factor), arguments, sizeof(double));
}

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

HWY_EXPORT(fold_float_vectors);
HWY_EXPORT(multiply_complex);
HWY_EXPORT(scale_float_vectors);
HWY_EXPORT(fold_half_vectors);
HWY_EXPORT(scale_half_vectors);

namespace {
DType part_of(DType dtype) {
  if (dtype == DType::c64) return DType::f32;
  return dtype == DType::c128 ? DType::f64 : dtype;
}
}  // namespace

void fold_float(DType dtype, ReduceKind kind, const FoldArguments& arguments) {
  HWY_DYNAMIC_DISPATCH(fold_float_vectors)(dtype, kind, arguments);
}

void fold_complex(DType dtype, ReduceKind kind, const FoldArguments& arguments) {
  if (kind == ReduceKind::product) return HWY_DYNAMIC_DISPATCH(multiply_complex)(dtype, arguments);
  FoldArguments parts = arguments;
  parts.n *= 2;
  fold_float(part_of(dtype), kind, parts);
}

void scale_float(DType dtype, const void* src, void* dst, std::size_t n, double factor) {
  const std::array<const void*, 1> operands = {src};
  const FoldArguments arguments = {operands, dst, is_complex(dtype) ? 2 * n : n};
  HWY_DYNAMIC_DISPATCH(scale_float_vectors)(part_of(dtype), arguments, factor);
}

void fold_half(DType dtype, ReduceKind kind, const FoldArguments& arguments) {
  HWY_DYNAMIC_DISPATCH(fold_half_vectors)(dtype, kind, arguments);
}

void scale_half(DType dtype, const void* src, void* dst, std::size_t n, double factor) {
  const std::array<const void*, 1> operands = {src};
  HWY_DYNAMIC_DISPATCH(scale_half_vectors)(dtype, {operands, dst, n}, factor);
}

}  // namespace mccl::kernels
#endif  // HWY_ONCE
