// Reductions of integers and bool. Sums and products wrap, so they are computed in unsigned
// arithmetic for signed types too.
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

void add_integers(const FoldArguments& arguments, std::size_t element_bytes) {
  switch (element_bytes) {
    case 1:
      return fold_loop(PlainLanes<std::uint8_t>(), Add(), arguments, 1);
    case 2:
      return fold_loop(PlainLanes<std::uint16_t>(), Add(), arguments, 2);
    case 4:
      return fold_loop(WordLanes<std::uint32_t>(), Add(), arguments, 4);
    default:
      return fold_loop(WordLanes<std::uint64_t>(), Add(), arguments, 8);
  }
}

void multiply_integers(const FoldArguments& arguments, std::size_t element_bytes) {
  switch (element_bytes) {
    case 1:
      return fold_loop(PlainLanes<std::uint16_t>(), MultiplyBytes(), arguments, 1);
    case 2:
      return fold_loop(PlainLanes<std::uint16_t>(), Multiply(), arguments, 2);
    case 4:
      return fold_loop(WordLanes<std::uint32_t>(), Multiply(), arguments, 4);
    default:
      return fold_loop(WordLanes<std::uint64_t>(), Multiply(), arguments, 8);
  }
}

template <class Op>
void choose_integers(DType dtype, const FoldArguments& arguments) {
  switch (dtype) {
    case DType::u8:
      return fold_loop(PlainLanes<std::uint8_t>(), Op(), arguments, 1);
    case DType::i8:
      return fold_loop(PlainLanes<std::int8_t>(), Op(), arguments, 1);
    case DType::u16:
      return fold_loop(PlainLanes<std::uint16_t>(), Op(), arguments, 2);
    case DType::i16:
      return fold_loop(PlainLanes<std::int16_t>(), Op(), arguments, 2);
    case DType::u32:
      return fold_loop(WordLanes<std::uint32_t>(), Op(), arguments, 4);
    case DType::i32:
      return fold_loop(WordLanes<std::int32_t>(), Op(), arguments, 4);
    case DType::u64:
      return fold_loop(WordLanes<std::uint64_t>(), Op(), arguments, 8);
    case DType::i64:
      return fold_loop(WordLanes<std::int64_t>(), Op(), arguments, 8);
    default:
      return;
  }
}

void fold_integer_vectors(DType dtype, ReduceKind kind, const FoldArguments& arguments) {
  if (dtype == DType::boolean) return fold_bool(kind, arguments);
  switch (kind) {
    case ReduceKind::product:
      return multiply_integers(arguments, size_of(dtype));
    case ReduceKind::min:
      return choose_integers<Minimum>(dtype, arguments);
    case ReduceKind::max:
      return choose_integers<Maximum>(dtype, arguments);
    case ReduceKind::band:
    case ReduceKind::bor:
    case ReduceKind::bxor:
      return fold_bits(kind, arguments, size_of(dtype));
    default:
      return add_integers(arguments, size_of(dtype));
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
