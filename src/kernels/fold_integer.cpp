// Reductions of integers and bool. Sums and products wrap, so they are computed in unsigned
// arithmetic for signed types too.
#include <type_traits>

#include "kernels/fold.h"
#include "kernels/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fold_integer.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/fold_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mccl::kernels::HWY_NAMESPACE {

struct Unfinished {
  template <class V>
  HWY_INLINE V finish(V v) const {
    return v;
  }
};

#define MCCL_INTEGER_OP(NAME, EXPRESSION)  \
  struct NAME : Unfinished {               \
    template <class V>                     \
    HWY_INLINE V combine(V a, V b) const { \
      return EXPRESSION;                   \
    }                                      \
  }

MCCL_INTEGER_OP(Add, hn::Add(a, b));
MCCL_INTEGER_OP(Multiply, hn::Mul(a, b));
MCCL_INTEGER_OP(Minimum, hn::Min(a, b));
MCCL_INTEGER_OP(Maximum, hn::Max(a, b));
MCCL_INTEGER_OP(BitAnd, hn::And(a, b));
MCCL_INTEGER_OP(BitOr, hn::Or(a, b));
MCCL_INTEGER_OP(BitXor, hn::Xor(a, b));

// No instruction set multiplies bytes, so two bytes are multiplied at a time, as u16.
MCCL_INTEGER_OP(MultiplyBytes,
                hn::Or(hn::And(hn::Mul(a, b), hn::Set(hn::DFromV<V>(), 0xFF)),
                       hn::ShiftLeft<8>(hn::Mul(hn::ShiftRight<8>(a), hn::ShiftRight<8>(b)))));
#undef MCCL_INTEGER_OP

/// Processes bool, whose bytes are 0 for false and any other value for true. Loading converts them
/// to 0 and 1.
struct BoolLanes : PlainLanes<std::uint8_t> {
  HWY_INLINE Values load(const std::uint8_t* from) const {
    return hn::Min(load_at(D(), from), hn::Set(D(), 1));
  }
};

void fold_bool(ReduceKind kind, const FoldArguments& arguments) {
  switch (kind) {
    case ReduceKind::product:
    case ReduceKind::min:
    case ReduceKind::band:
      return fold_loop(BoolLanes(), BitAnd(), arguments, 1);
    case ReduceKind::bxor:
      return fold_loop(BoolLanes(), BitXor(), arguments, 1);
    default:
      return fold_loop(BoolLanes(), BitOr(), arguments, 1);
  }
}

void fold_bits(ReduceKind kind, const FoldArguments& arguments, std::size_t element_bytes) {
  using Bytes = PlainLanes<std::uint8_t>;
  if (kind == ReduceKind::band) return fold_loop(Bytes(), BitAnd(), arguments, element_bytes);
  if (kind == ReduceKind::bor) return fold_loop(Bytes(), BitOr(), arguments, element_bytes);
  fold_loop(Bytes(), BitXor(), arguments, element_bytes);
}

/// Folds integers of type T. For types of 4 or 8 bytes, the last elements, fewer than a vector, may
/// be folded one by one (WordLanes).
template <class T, class Op>
void fold_as(Op op, const FoldArguments& arguments) {
  if constexpr (sizeof(T) == 1 && std::is_same_v<Op, Multiply>) {
    fold_loop(PlainLanes<std::uint16_t>(), MultiplyBytes(), arguments, 1);
  } else if constexpr (sizeof(T) < 4) {
    fold_loop(PlainLanes<T>(), op, arguments, sizeof(T));
  } else {
    fold_loop(WordLanes<T>(), op, arguments, sizeof(T));
  }
}

/// Folds signed integers as unsigned ones, which give the same bits in sums and products.
template <class Op>
void fold_unsigned(Op op, const FoldArguments& arguments, std::size_t element_bytes) {
  switch (element_bytes) {
    case 1:
      return fold_as<std::uint8_t>(op, arguments);
    case 2:
      return fold_as<std::uint16_t>(op, arguments);
    case 4:
      return fold_as<std::uint32_t>(op, arguments);
    default:
      return fold_as<std::uint64_t>(op, arguments);
  }
}

void fold_integer_vectors(DType dtype, ReduceKind kind, const FoldArguments& arguments) {
  if (dtype == DType::boolean) return fold_bool(kind, arguments);
  switch (kind) {
    case ReduceKind::product:
      return fold_unsigned(Multiply(), arguments, size_of(dtype));
    case ReduceKind::min:
      return visit_integer(dtype, [&]<class T>(T) { fold_as<T>(Minimum(), arguments); });
    case ReduceKind::max:
      return visit_integer(dtype, [&]<class T>(T) { fold_as<T>(Maximum(), arguments); });
    case ReduceKind::band:
    case ReduceKind::bor:
    case ReduceKind::bxor:
      return fold_bits(kind, arguments, size_of(dtype));
    default:
      return fold_unsigned(Add(), arguments, size_of(dtype));
  }
}

}  // namespace mccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mccl::kernels {

HWY_EXPORT(fold_integer_vectors);

void fold_integer(DType dtype, ReduceKind kind, const FoldArguments& arguments) {
  HWY_DYNAMIC_DISPATCH(fold_integer_vectors)(dtype, kind, arguments);
}

}  // namespace mccl::kernels
#endif  // HWY_ONCE
