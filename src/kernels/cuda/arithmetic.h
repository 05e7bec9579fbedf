// The arithmetic of the kernels, for the host's tests too: how elements become floats, are summed
// in rank order, and become elements again, rounded once.
#pragma once

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define MCCL_BOTH __host__ __device__ __forceinline__
#else
#define MCCL_BOTH inline
#endif

namespace mccl::kernels::cuda {

MCCL_BOTH float float_of_bits(std::uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

MCCL_BOTH std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

/// Elements by their bits.
struct F32 {
  using Bits = std::uint32_t;
  static MCCL_BOTH float widen(Bits bits) { return float_of_bits(bits); }
  static MCCL_BOTH Bits narrow(float value) { return bits_of(value); }
};

struct Bf16 {
  using Bits = std::uint16_t;
  static MCCL_BOTH float widen(Bits bits) {
    return float_of_bits(static_cast<std::uint32_t>(bits) << 16);
  }
  /// To the nearest, ties to even; NaN stays NaN.
  static MCCL_BOTH Bits narrow(float value) {
    const std::uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<Bits>((bits >> 16) | 0x40U);
    return static_cast<Bits>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
  }
};

struct F16 {
  using Bits = std::uint16_t;
  static MCCL_BOTH float widen(Bits bits) {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
    const std::uint32_t rest = bits & 0x7fffU;
    if (rest >= 0x7c00U) return float_of_bits(sign | 0x7f800000U | (rest & 0x3ffU) << 13);
    // The exponent's bias is put right by a product, which is exact for subnormals too.
    return float_of_bits(sign | bits_of(float_of_bits(rest << 13) * float_of_bits(0x77800000U)));
  }
  static MCCL_BOTH Bits narrow(float value) {
    const std::uint32_t bits = bits_of(value);
    const std::uint32_t sign = bits >> 16 & 0x8000U;
    const std::uint32_t rest = bits & 0x7fffffffU;
    if (rest > 0x7f800000U) return static_cast<Bits>(sign | 0x7e00U | (rest >> 13 & 0x3ffU));
    if (rest >= 0x477ff000U) return static_cast<Bits>(sign | 0x7c00U);
    if (rest < 0x38800000U) {
      // Subnormal: adding a half lines its bits up, rounded as floats are.
      return static_cast<Bits>(sign | (bits_of(float_of_bits(rest) + 0.5F) - 0x3f000000U));
    }
    return static_cast<Bits>(sign | (rest - 0x38000000U + 0xfffU + (rest >> 13 & 1U)) >> 13);
  }
};

/// Sixteen bytes of elements, as floats.
template <typename T>
struct Wide {
  static constexpr int kCount = 16 / static_cast<int>(sizeof(typename T::Bits));
  float lanes[kCount];
};

/// The first of a sum.
template <typename T>
MCCL_BOTH void set(Wide<T>& sum, const typename T::Bits* elements) {
  for (int i = 0; i < Wide<T>::kCount; ++i) sum.lanes[i] = T::widen(elements[i]);
}

template <typename T>
MCCL_BOTH void add(Wide<T>& sum, const typename T::Bits* elements) {
  for (int i = 0; i < Wide<T>::kCount; ++i) sum.lanes[i] += T::widen(elements[i]);
}

/// A mean is the sum over `divisor`; of a sum it is 1.
template <typename T>
MCCL_BOTH void round_to(typename T::Bits* elements, const Wide<T>& sum, float divisor) {
  for (int i = 0; i < Wide<T>::kCount; ++i) {
    elements[i] = T::narrow(divisor == 1.0F ? sum.lanes[i] : sum.lanes[i] / divisor);
  }
}

}  // namespace mccl::kernels::cuda
