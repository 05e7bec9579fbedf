// Converts the bits of 16-bit and 32-bit floats to f32 and back, rounding once. The host, CUDA and
// Metal share this file.
#pragma once

#ifdef __METAL_VERSION__
#include <metal_stdlib>
using namespace metal;
#define MCCL_BOTH inline
#else
#include <cstdint>
#include <cstring>
#ifdef __CUDACC__
#define MCCL_BOTH __host__ __device__ __forceinline__
#else
#define MCCL_BOTH inline
#endif
#endif

namespace mccl {
namespace kernels {

using Bits32 = unsigned int;
using Bits16 = unsigned short;

#ifdef __METAL_VERSION__
MCCL_BOTH float float_of_bits(Bits32 bits) { return as_type<float>(bits); }
MCCL_BOTH Bits32 bits_of(float value) { return as_type<Bits32>(value); }
#else
MCCL_BOTH float float_of_bits(Bits32 bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

MCCL_BOTH Bits32 bits_of(float value) {
  Bits32 bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}
#endif

struct F32 {
  using Bits = Bits32;
  static MCCL_BOTH float widen(Bits bits) { return float_of_bits(bits); }
  static MCCL_BOTH Bits narrow(float value) { return bits_of(value); }
};

struct Bf16 {
  using Bits = Bits16;
  static MCCL_BOTH float widen(Bits bits) { return float_of_bits(static_cast<Bits32>(bits) << 16); }
  /// Rounds to nearest, ties to even. NaN stays NaN.
  static MCCL_BOTH Bits narrow(float value) {
    const Bits32 bits = bits_of(value);
    if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<Bits>((bits >> 16) | 0x40U);
    return static_cast<Bits>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
  }
};

struct F16 {
  using Bits = Bits16;
  static MCCL_BOTH float widen(Bits bits) {
    const Bits32 sign = static_cast<Bits32>(bits & 0x8000U) << 16;
    const Bits32 rest = bits & 0x7fffU;
    if (rest >= 0x7c00U) return float_of_bits(sign | 0x7f800000U | (rest & 0x3ffU) << 13);
#ifdef __METAL_VERSION__
    // No intermediate result may be a 32-bit subnormal, because Apple's GPUs treat those as 0.
    if (rest < 0x400U)
      return float_of_bits(sign | bits_of(static_cast<float>(rest) * 5.9604644775390625e-8F));
    return float_of_bits(sign | ((rest << 13) + 0x38000000U));
#else
    // The product corrects the bias of the exponent; it is exact for subnormals too.
    return float_of_bits(sign | bits_of(float_of_bits(rest << 13) * float_of_bits(0x77800000U)));
#endif
  }
  static MCCL_BOTH Bits narrow(float value) {
    const Bits32 bits = bits_of(value);
    const Bits32 sign = bits >> 16 & 0x8000U;
    const Bits32 rest = bits & 0x7fffffffU;
    if (rest > 0x7f800000U) return static_cast<Bits>(sign | 0x7e00U | (rest >> 13 & 0x3ffU));
    if (rest >= 0x477ff000U) return static_cast<Bits>(sign | 0x7c00U);
    if (rest < 0x38800000U) {
      // The result is subnormal. Adding 0.5 shifts its bits into place and rounds them as f32
      // addition does.
      return static_cast<Bits>(sign | (bits_of(float_of_bits(rest) + 0.5F) - 0x3f000000U));
    }
    return static_cast<Bits>(sign | (rest - 0x38000000U + 0xfffU + (rest >> 13 & 1U)) >> 13);
  }
};

}  // namespace kernels
}  // namespace mccl
