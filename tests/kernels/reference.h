// Defines the kernels' results by loops over single elements. Tests compare the vector code with
// these functions bit for bit.
//
// 16-bit floats are computed in f32 and rounded to nearest even, once. Every NaN result is the
// positive quiet NaN with no payload. min(-0, +0) is -0 and max(-0, +0) is +0, in either order. A
// complex product is the plain formula; it does not recover infinities as C's operator does.
// Integers wrap. bool treats every byte except 0 as true, and results are 0 or 1.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>

#include "kernels/fold.h"
#include "mccl/types.h"

namespace mccl::kernels::reference {

// ---- 16-bit formats, computed from their definition ----

struct Format {
  int mantissa_bits;
  int least_exponent;  // smallest exponent of a normal number
};
constexpr Format kF16 = {10, -14};
constexpr Format kBf16 = {7, -126};

inline std::uint16_t special_bits(Format format) {
  return static_cast<std::uint16_t>(0x7FFF & ~((1 << format.mantissa_bits) - 1));
}

inline float widen(Format format, std::uint16_t bits) {
  const int mantissa = bits & ((1 << format.mantissa_bits) - 1);
  const int biased = (bits & 0x7FFF) >> format.mantissa_bits;
  const double sign = (bits & 0x8000) ? -1 : 1;
  if ((bits & special_bits(format)) == special_bits(format)) {
    if (mantissa != 0) return std::numeric_limits<float>::quiet_NaN();
    return static_cast<float>(sign * std::numeric_limits<double>::infinity());
  }
  const int implicit = biased == 0 ? 0 : 1 << format.mantissa_bits;
  const int exponent = (biased == 0 ? 1 : biased) - 1 + format.least_exponent;
  return static_cast<float>(sign *
                            std::ldexp(implicit + mantissa, exponent - format.mantissa_bits));
}

inline std::uint16_t narrow(Format format, float value) {
  const std::uint16_t infinity = special_bits(format);
  if (std::isnan(value)) {
    return static_cast<std::uint16_t>(infinity | (1 << (format.mantissa_bits - 1)));
  }
  const int sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(static_cast<double>(value));
  if (std::isinf(magnitude)) return static_cast<std::uint16_t>(sign | infinity);
  int exponent = magnitude == 0 ? format.least_exponent : std::ilogb(magnitude);
  if (exponent < format.least_exponent) exponent = format.least_exponent;
  // The magnitude in units of the format's last place. nearbyint() rounds it to nearest even, the
  // current rounding mode. All other operations are exact.
  const double places = std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - exponent));
  // A carry out of the mantissa increments the exponent, up to infinity.
  const auto bits = static_cast<long>(places) +
                    (static_cast<long>(exponent - format.least_exponent) << format.mantissa_bits);
  return static_cast<std::uint16_t>(sign | (bits < infinity ? bits : infinity));
}

inline float widen_f16(std::uint16_t bits) { return widen(kF16, bits); }
inline float widen_bf16(std::uint16_t bits) { return widen(kBf16, bits); }
inline std::uint16_t narrow_f16(float value) { return narrow(kF16, value); }
inline std::uint16_t narrow_bf16(float value) { return narrow(kBf16, value); }

// ---- elements: the type a value is computed in, and how it is read and written ----

template <class T>
struct Plain {
  using Value = T;
  static T decode(T stored) { return stored; }
  static T encode(T value) { return value; }
};

struct Bool {
  using Value = bool;
  static bool decode(std::uint8_t stored) { return stored != 0; }
  static std::uint8_t encode(bool value) { return value ? 1 : 0; }
};

struct F16 {
  using Value = float;
  static float decode(std::uint16_t stored) { return widen_f16(stored); }
  static std::uint16_t encode(float value) { return narrow_f16(value); }
};

struct Bf16 {
  using Value = float;
  static float decode(std::uint16_t stored) { return widen_bf16(stored); }
  static std::uint16_t encode(float value) { return narrow_bf16(value); }
};

template <class T>
struct Complex {
  T re;
  T im;
};

// ---- combining two values ----

template <class T>
T combine_floats(ReduceKind kind, T a, T b) {
  switch (kind) {
    case ReduceKind::product:
      return a * b;
    case ReduceKind::min:
      if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
      if (a == b) return std::signbit(a) ? a : b;
      return a < b ? a : b;
    case ReduceKind::max:
      if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
      if (a == b) return std::signbit(a) ? b : a;
      return a > b ? a : b;
    default:
      return a + b;
  }
}

template <class T>
T combine_integers(ReduceKind kind, T a, T b) {
  // Sign extension does no harm, because only the low bits, those of T, are kept.
  // NOLINTBEGIN(bugprone-signed-char-misuse)
  const auto wide_a = static_cast<std::uint64_t>(a);
  const auto wide_b = static_cast<std::uint64_t>(b);
  // NOLINTEND(bugprone-signed-char-misuse)
  switch (kind) {
    case ReduceKind::product:
      return static_cast<T>(wide_a * wide_b);
    case ReduceKind::min:
      return a < b ? a : b;
    case ReduceKind::max:
      return a > b ? a : b;
    case ReduceKind::band:
      return static_cast<T>(wide_a & wide_b);
    case ReduceKind::bor:
      return static_cast<T>(wide_a | wide_b);
    case ReduceKind::bxor:
      return static_cast<T>(wide_a ^ wide_b);
    default:
      return static_cast<T>(wide_a + wide_b);
  }
}

inline bool combine_bools(ReduceKind kind, bool a, bool b) {
  switch (kind) {
    case ReduceKind::product:
    case ReduceKind::min:
    case ReduceKind::band:
      return a && b;
    case ReduceKind::bxor:
      return a != b;
    default:
      return a || b;
  }
}

template <class T>
T combine(ReduceKind kind, T a, T b) {
  if constexpr (std::is_same_v<T, bool>) {
    return combine_bools(kind, a, b);
  } else if constexpr (std::is_floating_point_v<T>) {
    return combine_floats(kind, a, b);
  } else {
    return combine_integers(kind, a, b);
  }
}

template <class T>
Complex<T> combine(ReduceKind kind, Complex<T> a, Complex<T> b) {
  if (kind != ReduceKind::product) return {a.re + b.re, a.im + b.im};
  // Volatile, so that no compiler fuses a multiplication with the addition.
  const volatile T straight[] = {a.re * b.re, a.im * b.im};
  const volatile T crossed[] = {a.re * b.im, a.im * b.re};
  return {straight[0] - straight[1], crossed[0] + crossed[1]};
}

// ---- finishing: every NaN becomes the same NaN ----

template <class T>
T finish(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(value)) return std::numeric_limits<T>::quiet_NaN();
  }
  return value;
}

template <class T>
Complex<T> finish(Complex<T> value) {
  return {finish(value.re), finish(value.im)};
}

template <class T>
T divided(T value, int divisor) {
  if constexpr (std::is_same_v<T, bool>) {
    return value;
  } else if constexpr (std::is_unsigned_v<T>) {
    return static_cast<T>(value / static_cast<std::uint64_t>(divisor));
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(value / static_cast<std::int64_t>(divisor));
  } else {
    return value / static_cast<T>(divisor);
  }
}

template <class T>
Complex<T> divided(Complex<T> value, int divisor) {
  return {divided(value.re, divisor), divided(value.im, divisor)};
}

template <class T>
T scaled(T value, double factor) {
  return static_cast<T>(value * static_cast<T>(factor));
}

template <class T>
Complex<T> scaled(Complex<T> value, double factor) {
  return {scaled(value.re, factor), scaled(value.im, factor)};
}

// ---- the loop: dst[i] = change(element i of all operands, combined) ----

template <class Element, class Change>
void each_element(ReduceKind kind, std::span<const void* const> operands, void* dst, std::size_t n,
                  const Change& change) {
  using Stored = decltype(Element::encode(typename Element::Value()));
  const auto read = [&](const void* operand, std::size_t i) {
    Stored stored;
    std::memcpy(&stored, static_cast<const char*>(operand) + i * sizeof(Stored), sizeof(Stored));
    return Element::decode(stored);
  };
  for (std::size_t i = 0; i < n; ++i) {
    auto value = read(operands[0], i);
    for (const void* operand : operands.subspan(1)) value = combine(kind, value, read(operand, i));
    const Stored stored = Element::encode(finish(change(value)));
    std::memcpy(static_cast<char*>(dst) + i * sizeof(Stored), &stored, sizeof(Stored));
  }
}

/// Calls `visit` with the Element that describes `dtype` if it is a float or complex type.
template <class Visit>
void visit_float(DType dtype, const Visit& visit) {
  switch (dtype) {
    case DType::f16:
      return visit(F16());
    case DType::bf16:
      return visit(Bf16());
    case DType::f32:
      return visit(Plain<float>());
    case DType::f64:
      return visit(Plain<double>());
    case DType::c64:
      return visit(Plain<Complex<float>>());
    case DType::c128:
      return visit(Plain<Complex<double>>());
    default:
      return;
  }
}

/// Calls `visit` with the Element that describes `dtype`. Supports every dtype.
template <class Visit>
void visit(DType dtype, const Visit& visit) {
  if (dtype == DType::boolean) return visit(Bool());
  visit_integer(dtype, [&]<class T>(T) { visit(Plain<T>()); });
  visit_float(dtype, visit);
}

// The functions of reduce.h.

inline void fold(DType dtype, ReduceKind kind, std::span<const void* const> operands, void* dst,
                 std::size_t n) {
  if (operands.empty()) return;
  const int divisor = kind == ReduceKind::avg ? static_cast<int>(operands.size()) : 1;
  visit(dtype, [&]<class Element>(Element) {
    each_element<Element>(kind, operands, dst, n,
                          [&](auto value) { return divided(value, divisor); });
  });
}

inline void reduce(DType dtype, ReduceKind kind, const void* a, const void* b, void* dst,
                   std::size_t n) {
  const std::array<const void*, 2> operands = {a, b};
  fold(dtype, kind == ReduceKind::avg ? ReduceKind::sum : kind, operands, dst, n);
}

inline void divide(DType dtype, void* data, std::size_t n, int divisor) {
  const std::array<const void*, 1> operands = {data};
  visit(dtype, [&]<class Element>(Element) {
    each_element<Element>(ReduceKind::sum, operands, data, n,
                          [&](auto value) { return divided(value, divisor); });
  });
}

inline void scale(DType dtype, const void* src, void* dst, std::size_t n, double factor) {
  const std::array<const void*, 1> operands = {src};
  visit_float(dtype, [&]<class Element>(Element) {
    each_element<Element>(ReduceKind::sum, operands, dst, n,
                          [&](auto value) { return scaled(value, factor); });
  });
}

}  // namespace mccl::kernels::reference
