// Operations on vectors of f32 and f64, compiled once per instruction set.
//
// Every NaN result is the same positive quiet NaN. The NaN that hardware returns depends on the
// machine and on the order of the operands, but ranks must agree on every bit.

#if defined(MCCL_KERNELS_FLOAT_OPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MCCL_KERNELS_FLOAT_OPS_INL_H_
#undef MCCL_KERNELS_FLOAT_OPS_INL_H_
#else
#define MCCL_KERNELS_FLOAT_OPS_INL_H_
#endif

#include <limits>

#include "kernels/fold_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mccl::kernels::HWY_NAMESPACE {

template <class V>
HWY_INLINE V one_nan(V v) {
  using D = hn::DFromV<V>;
  const V nan = hn::Set(D(), std::numeric_limits<hn::TFromD<D>>::quiet_NaN());
  return hn::IfThenElse(hn::IsNaN(v), nan, v);
}

struct FloatOp {
  template <class V>
  HWY_INLINE V finish(V v) const {
    return one_nan(v);
  }
};

struct SumFloat : FloatOp {
  template <class V>
  HWY_INLINE V combine(V a, V b) const {
    return hn::Add(a, b);
  }
};

template <class T>
struct AverageFloat : SumFloat {
  explicit AverageFloat(int count) : divisor(static_cast<T>(count)) {}
  template <class V>
  HWY_INLINE V finish(V v) const {
    return one_nan(hn::Div(v, hn::Set(hn::DFromV<V>(), divisor)));
  }
  T divisor;
};

template <class T>
struct ScaleFloat : SumFloat {
  explicit ScaleFloat(double by) : factor(static_cast<T>(by)) {}
  template <class V>
  HWY_INLINE V finish(V v) const {
    return one_nan(hn::Mul(v, hn::Set(hn::DFromV<V>(), factor)));
  }
  T factor;
};

struct ProductFloat : FloatOp {
  template <class V>
  HWY_INLINE V combine(V a, V b) const {
    return hn::Mul(a, b);
  }
};

// Equal numbers have equal bits, except +0 and -0. OR of the bits of +0 and -0 gives -0, the
// minimum; AND gives +0, the maximum. So the result does not depend on the order of the operands.
struct MinFloat : FloatOp {
  template <class V>
  HWY_INLINE V combine(V a, V b) const {
    const V smaller = hn::IfThenElse(hn::Lt(a, b), a, b);
    const V number = hn::IfThenElse(hn::Eq(a, b), hn::Or(a, b), smaller);
    return hn::IfThenElse(hn::IsNaN(a), a, number);
  }
};

struct MaxFloat : FloatOp {
  template <class V>
  HWY_INLINE V combine(V a, V b) const {
    const V larger = hn::IfThenElse(hn::Lt(b, a), a, b);
    const V number = hn::IfThenElse(hn::Eq(a, b), hn::And(a, b), larger);
    return hn::IfThenElse(hn::IsNaN(a), a, number);
  }
};

/// Runs the operation of `kind` on floats that are computed as T.
template <class T, class Lanes>
HWY_INLINE void fold_floats(Lanes lanes, ReduceKind kind, const FoldArguments& arguments,
                            std::size_t element_bytes) {
  switch (kind) {
    case ReduceKind::sum:
      return fold_loop(lanes, SumFloat(), arguments, element_bytes);
    case ReduceKind::avg:
      return fold_loop(lanes, AverageFloat<T>(arguments.divisor), arguments, element_bytes);
    case ReduceKind::product:
      return fold_loop(lanes, ProductFloat(), arguments, element_bytes);
    case ReduceKind::min:
      return fold_loop(lanes, MinFloat(), arguments, element_bytes);
    case ReduceKind::max:
      return fold_loop(lanes, MaxFloat(), arguments, element_bytes);
    default:
      return;
  }
}

}  // namespace mccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MCCL_KERNELS_FLOAT_OPS_INL_H_
