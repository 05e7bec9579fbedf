#include "kernels/reduce.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/fold.h"

namespace mccl::kernels {
namespace {

void fold_any(DType dtype, ReduceKind kind, const FoldArguments& arguments) {
  if (arguments.n == 0) return;
  if (dtype == DType::f32 || dtype == DType::f64) return fold_float(dtype, kind, arguments);
  if (is_floating(dtype)) return fold_half(dtype, kind, arguments);
  if (is_complex(dtype)) return fold_complex(dtype, kind, arguments);
  fold_integer(dtype, kind, arguments);
}

/// data[i] /= divisor, truncating toward zero.
template <class T>
void divide_as(void* data, std::size_t n, int divisor) {
  // Both types can represent all values of T and the divisor. Quick has only 32 bits where they
  // suffice, because 32-bit division is faster.
  using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
  using Quick = std::conditional_t<(sizeof(T) < 4), std::int32_t, Wide>;
  auto* at = static_cast<unsigned char*>(data);
  for (std::size_t i = 0; i < n; ++i, at += sizeof(T)) {
    T value;
    std::memcpy(&value, at, sizeof(T));
    value = static_cast<T>(static_cast<Quick>(value) / static_cast<Quick>(divisor));
    std::memcpy(at, &value, sizeof(T));
  }
}

}  // namespace

void reduce(DType dtype, ReduceKind kind, const void* a, const void* b, void* dst, std::size_t n) {
  const std::array<const void*, 2> operands = {a, b};
  const bool adds = kind == ReduceKind::avg || kind == ReduceKind::premul_sum;
  fold_any(dtype, adds ? ReduceKind::sum : kind, {operands, dst, n});
}

void fold(DType dtype, ReduceKind kind, std::span<const void* const> operands, void* dst,
          std::size_t n) {
  if (operands.empty()) return;
  const int count = static_cast<int>(operands.size());
  if (kind != ReduceKind::avg) {
    const bool adds = kind == ReduceKind::premul_sum;
    return fold_any(dtype, adds ? ReduceKind::sum : kind, {operands, dst, n});
  }
  if (is_integer(dtype)) {
    fold_any(dtype, ReduceKind::sum, {operands, dst, n});
    return divide(dtype, dst, n, count);
  }
  fold_any(dtype, ReduceKind::avg, {operands, dst, n, count});
}

void divide(DType dtype, void* data, std::size_t n, int divisor) {
  if (divisor == 1) return;
  if (is_integer(dtype))
    return visit_integer(dtype, [&]<class T>(T) { divide_as<T>(data, n, divisor); });
  const std::array<const void*, 1> operands = {data};
  fold_any(dtype, ReduceKind::avg, {operands, data, n, divisor});
}

void scale(DType dtype, const void* src, void* dst, std::size_t n, double factor) {
  if (n == 0) return;
  if (dtype == DType::f16 || dtype == DType::bf16) return scale_half(dtype, src, dst, n, factor);
  scale_float(dtype, src, dst, n, factor);
}

}  // namespace mccl::kernels
