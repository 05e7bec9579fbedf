// Value types that every layer uses: element types, reductions, collectives. Plain values and pure
// functions: no I/O, and safe to use on any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "mccl/export.h"

namespace mccl {

/// Type of one element. `f16` is IEEE binary16, `bf16` is bfloat16; complex types are (real,
/// imaginary) pairs.
enum class DType : std::uint8_t {
  boolean,
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  u64,
  i64,
  f16,
  bf16,
  f32,
  f64,
  c64,
  c128,
};
inline constexpr int kDTypeCount = 15;

/// How a reduction combines elements; see supports() for the types that each kind is defined for.
enum class ReduceKind : std::uint8_t {
  sum,
  avg,
  product,
  min,
  max,
  band,
  bor,
  bxor,
  premul_sum,
};
inline constexpr int kReduceKindCount = 9;

/// A reduction. Only `premul_sum` uses `factor`: each rank multiplies its input by its own factor
/// before the sum.
struct ReduceOp {
  ReduceKind kind = ReduceKind::sum;  ///< How elements are combined.
  double factor = 1.0;                ///< Factor of this rank's input, for premul_sum.

  constexpr ReduceOp() = default;
  constexpr ReduceOp(ReduceKind k, double f = 1.0) : kind(k), factor(f) {}
  friend bool operator==(const ReduceOp&, const ReduceOp&) = default;
};

/// The operations of a Group, point-to-point messages included.
enum class Collective : std::uint8_t {
  all_reduce,
  broadcast,
  reduce,
  all_gather,
  gather,
  scatter,
  reduce_scatter,
  all_to_all,
  barrier,
  send,
  recv,
};
inline constexpr int kCollectiveCount = 11;

/// Bytes of one element; 0 for a value outside the enum.
constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::boolean:
    case DType::u8:
    case DType::i8:
      return 1;
    case DType::u16:
    case DType::i16:
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::u32:
    case DType::i32:
    case DType::f32:
      return 4;
    case DType::u64:
    case DType::i64:
    case DType::f64:
    case DType::c64:
      return 8;
    case DType::c128:
      return 16;
  }
  return 0;
}

constexpr bool is_floating(DType t) {
  return t == DType::f16 || t == DType::bf16 || t == DType::f32 || t == DType::f64;
}
constexpr bool is_complex(DType t) { return t == DType::c64 || t == DType::c128; }
constexpr bool is_integer(DType t) {
  return !is_floating(t) && !is_complex(t) && t != DType::boolean;
}

/// True if a reduction is defined for a type. bool: sum and max mean "or", product and min mean
/// "and", and the three bitwise kinds apply. Integers: all but premul_sum. Floats: all but the
/// three bitwise kinds. Complex: sum, avg, product and premul_sum.
constexpr bool supports(DType dtype, ReduceKind kind) {
  const bool bitwise =
      kind == ReduceKind::band || kind == ReduceKind::bor || kind == ReduceKind::bxor;
  const bool ordered = kind == ReduceKind::min || kind == ReduceKind::max;
  if (dtype == DType::boolean) return kind != ReduceKind::avg && kind != ReduceKind::premul_sum;
  if (is_integer(dtype)) return kind != ReduceKind::premul_sum;
  if (is_complex(dtype)) return !bitwise && !ordered;
  return !bitwise;
}

/// The lower-case name of the value, such as "f32", "premul_sum" or "all_reduce". `dtype`, `kind`
/// and `collective` must be values of the enum. The text is static.
MCCL_API std::string_view name_of(DType dtype);
MCCL_API std::string_view name_of(ReduceKind kind);
MCCL_API std::string_view name_of(Collective collective);

}  // namespace mccl
