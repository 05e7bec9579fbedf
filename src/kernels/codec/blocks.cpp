// The codecs fp16, bf16, int8, fp8 and int4, in blocks of 128 elements.
//
// The scale of a block is its largest magnitude divided by the largest number of the format. A
// block with an infinity or a NaN has a NaN as its scale, and decodes to NaN. A block whose largest
// magnitude is below 2^-100 decodes to zero.
#include "kernels/codec/blocks.h"

#include <cstring>

#include "kernels/elements.h"
#include "kernels/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/codec/blocks.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/float_ops-inl.h"
#include "kernels/half-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mccl::kernels::HWY_NAMESPACE {

constexpr std::size_t kElements = 128;
constexpr std::size_t kScale = sizeof(float);

using U8 = hn::Rebind<std::uint8_t, F32>;
using I8 = hn::Rebind<std::int8_t, F32>;
using U16 = hn::Rebind<std::uint16_t, F32>;

using Floats = hn::Vec<F32>;
using Bits = hn::Vec<U32>;

HWY_INLINE Floats floats_at(const float* from) { return hn::LoadU(F32(), from); }
template <class D>
HWY_INLINE hn::Vec<D> elements_at(D, const std::byte* from) {
  return load_at(D(), reinterpret_cast<const std::uint8_t*>(from));
}
template <class D>
HWY_INLINE void put(hn::Vec<D> v, D, std::byte* to) {
  store_at(v, D(), reinterpret_cast<std::uint8_t*>(to));
}

/// Adds v to values, or assigns it if `first` is set.
HWY_INLINE void give(Floats v, float* values, bool first) {
  hn::StoreU(first ? v : hn::Add(floats_at(values), v), F32(), values);
}

/// Returns the bits of the largest magnitude in a block. As integers, these bits have the same
/// order as the magnitudes, and NaN is the largest.
HWY_INLINE std::uint32_t largest_of(const float* block) {
  const I32 i32;
  const auto magnitude = hn::Set(i32, 0x7FFFFFFF);
  auto most = hn::Zero(i32);
  for (std::size_t i = 0; i < kElements; i += hn::Lanes(i32))
    most = hn::Max(most, hn::And(hn::BitCast(i32, floats_at(block + i)), magnitude));
  return static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(i32, most)));
}

struct Scaling {
  float scale;    ///< Factor by which decoding multiplies the elements; sent with the block.
  float inverse;  ///< Factor by which encoding multiplies the elements.
};

HWY_INLINE Scaling scaling_of(const float* block, float most_of_format) {
  const std::uint32_t bits = largest_of(block);
  if (bits >= 0x7F800000u) return {float_of_bits(0x7FC00000u), 0};
  const float largest = float_of_bits(bits);
  if (largest < 0x1p-100F) return {0, 0};
  return {largest / most_of_format, most_of_format / largest};
}

/// Reads the scale. Returns false if scaling_of() cannot have produced it.
HWY_INLINE bool take_scale(const std::byte* block, float& scale) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, block, sizeof bits);
  std::memcpy(&scale, block, sizeof scale);
  return bits < 0x7F800000u || bits == 0x7FC00000u;
}

/// Multiplies the elements by `inverse`. If the scale is NaN, the results are not used.
HWY_INLINE Floats scaled(Floats v, float inverse) { return hn::Mul(v, hn::Set(F32(), inverse)); }

struct Int8 {
  static constexpr float kMost = 127;
  static constexpr std::size_t kBytes = kElements;

  static HWY_INLINE void encode(const float* block, float inverse, std::byte* dst) {
    for (std::size_t i = 0; i < kElements; i += hn::Lanes(F32()))
      put(hn::DemoteTo(I8(), hn::NearestInt(scaled(floats_at(block + i), inverse))), I8(), dst + i);
  }
  static HWY_INLINE void add(const std::byte* src, float scale, float* values, bool first) {
    const auto by = hn::Set(F32(), scale);
    for (std::size_t i = 0; i < kElements; i += hn::Lanes(F32())) {
      const auto whole = hn::ConvertTo(F32(), hn::PromoteTo(I32(), elements_at(I8(), src + i)));
      give(hn::Mul(whole, by), values + i, first);
    }
  }
};

/// Byte i holds element i in its lower four bits and element i + 64 in its upper four bits. 8 is
/// added to each element, so that the four bits hold no negative number.
struct Int4 {
  static constexpr float kMost = 7;
  static constexpr std::size_t kBytes = kElements / 2;

  static HWY_INLINE void encode(const float* block, float inverse, std::byte* dst) {
    const I32 i32;
    const auto nibble = [&](const float* from) {
      return hn::Add(hn::NearestInt(scaled(floats_at(from), inverse)), hn::Set(i32, 8));
    };
    for (std::size_t i = 0; i < kBytes; i += hn::Lanes(F32())) {
      const auto both = hn::Or(nibble(block + i), hn::ShiftLeft<4>(nibble(block + kBytes + i)));
      put(hn::DemoteTo(U8(), both), U8(), dst + i);
    }
  }
  static HWY_INLINE void add(const std::byte* src, float scale, float* values, bool first) {
    const I32 i32;
    const auto by = hn::Set(F32(), scale);
    const auto eight = hn::Set(i32, 8);
    for (std::size_t i = 0; i < kBytes; i += hn::Lanes(F32())) {
      const auto both = hn::PromoteTo(i32, elements_at(U8(), src + i));
      const auto low = hn::Sub(hn::And(both, hn::Set(i32, 15)), eight);
      const auto high = hn::Sub(hn::ShiftRight<4>(both), eight);
      give(hn::Mul(hn::ConvertTo(F32(), low), by), values + i, first);
      give(hn::Mul(hn::ConvertTo(F32(), high), by), values + kBytes + i, first);
    }
  }
};

/// An 8-bit float: `kPlaces` bits of fraction, an exponent with the bias `kBias`, and a sign.
template <int kPlaces, unsigned kBias, unsigned kLargest>
struct Fp8 {
  static constexpr std::size_t kBytes = kElements;
  static constexpr int kDropped = 23 - kPlaces;
  static constexpr unsigned kLeastNormal = (127 - kBias + 1) << 23;  // bits of an f32
  static constexpr float kMost = kLargest;

  static HWY_INLINE void encode(const float* block, float inverse, std::byte* dst) {
    const U32 u32;
    for (std::size_t i = 0; i < kElements; i += hn::Lanes(u32)) {
      const auto bits = hn::BitCast(u32, scaled(floats_at(block + i), inverse));
      const auto magnitude = hn::And(bits, hn::Set(u32, 0x7FFFFFFFu));
      const auto sign = hn::ShiftRight<24>(hn::Xor(bits, magnitude));
      put(hn::TruncateTo(U8(), hn::Or(rounded(magnitude), sign)), U8(), dst + i);
    }
  }
  static HWY_INLINE void add(const std::byte* src, float scale, float* values, bool first) {
    const U32 u32;
    const auto by = hn::Set(F32(), scale);
    for (std::size_t i = 0; i < kElements; i += hn::Lanes(u32)) {
      const auto code = hn::PromoteTo(u32, elements_at(U8(), src + i));
      give(hn::Mul(value_of(code), by), values + i, first);
    }
  }

 private:
  /// Rounds to the format. The magnitudes must not exceed the largest number of the format.
  static HWY_INLINE Bits rounded(Bits magnitude) {
    const U32 u32;
    const F32 f32;
    const auto odd = hn::And(hn::ShiftRight<kDropped>(magnitude), hn::Set(u32, 1));
    const auto carried = hn::Add(magnitude, hn::Add(odd, hn::Set(u32, (1u << (kDropped - 1)) - 1)));
    const auto normal =
        hn::ShiftRight<kDropped>(hn::Sub(carried, hn::Set(u32, (127 - kBias) << 23)));
    // The last bit of `coarse` has the value of the last bit of the format's subnormals, so the
    // addition rounds the magnitude to the format.
    const auto coarse = hn::Set(f32, subnormal_rounder());
    const auto sum = hn::Add(hn::BitCast(f32, magnitude), coarse);
    const auto subnormal = hn::Sub(hn::BitCast(u32, sum), hn::BitCast(u32, coarse));
    const auto is_subnormal = hn::Lt(hn::BitCast(I32(), magnitude), hn::Set(I32(), kLeastNormal));
    return hn::IfThenElse(hn::RebindMask(u32, is_subnormal), subnormal, normal);
  }
  /// Returns 2^23 * 2^(1 - kBias - kPlaces).
  static constexpr float subnormal_rounder() {
    float power = 1;
    for (int i = 0; i < 23 + 1 - static_cast<int>(kBias) - kPlaces; ++i) power *= 2;
    return power;
  }
  static HWY_INLINE Floats value_of(Bits code) {
    const U32 u32;
    const F32 f32;
    const auto magnitude = hn::And(code, hn::Set(u32, 0x7F));
    const auto sign = hn::ShiftLeft<24>(hn::Xor(code, magnitude));
    const auto shifted = hn::ShiftLeft<kDropped>(magnitude);
    const auto normal = hn::Add(shifted, hn::Set(u32, (127 - kBias) << 23));
    // Uses the method of widened() in half-inl.h.
    const auto least = hn::Set(u32, kLeastNormal);
    const auto subnormal = hn::BitCast(
        u32, hn::Sub(hn::BitCast(f32, hn::Or(shifted, least)), hn::BitCast(f32, least)));
    const auto is_subnormal = hn::Lt(hn::BitCast(I32(), magnitude), hn::Set(I32(), 1 << kPlaces));
    const auto found = hn::IfThenElse(hn::RebindMask(u32, is_subnormal), subnormal, normal);
    return hn::BitCast(f32, hn::Or(found, sign));
  }
};
using Fp8E4M3 = Fp8<3, 7, 448>;
using Fp8E5M2 = Fp8<2, 15, 57344>;

/// Computes the scales of several blocks before it encodes their elements, so that the divisions
/// overlap.
template <class Format>
void encode_scaled(const float* src, std::size_t blocks, std::byte* dst) {
  constexpr std::size_t kAhead = 16;
  Scaling scalings[kAhead];
  for (std::size_t begin = 0; begin < blocks; begin += kAhead) {
    const std::size_t end = begin + kAhead < blocks ? begin + kAhead : blocks;
    for (std::size_t b = begin; b < end; ++b)
      scalings[b - begin] = scaling_of(src + b * kElements, Format::kMost);
    for (std::size_t b = begin; b < end; ++b) {
      const Scaling& scaling = scalings[b - begin];
      std::memcpy(dst, &scaling.scale, kScale);
      Format::encode(src + b * kElements, scaling.inverse, dst + kScale);
      dst += kScale + Format::kBytes;
    }
  }
}

template <class Format>
bool add_scaled(const std::byte* src, std::size_t blocks, float* values, bool first) {
  bool good = true;
  for (std::size_t b = 0; b < blocks; ++b) {
    float scale = 0;
    good = take_scale(src, scale) && good;
    Format::add(src + kScale, scale, values, first);
    src += kScale + Format::kBytes;
    values += kElements;
  }
  return good;
}

template <class Element>
void widen_some(const std::byte* src, std::size_t begin, std::size_t end, float* dst) {
  for (std::size_t i = begin; i < end; ++i) {
    Bits16 bits = 0;
    std::memcpy(&bits, src + 2 * i, sizeof bits);
    dst[i] = Element::widen(bits);
  }
}

template <class Element>
void narrow_some(const float* src, std::size_t begin, std::size_t end, std::byte* dst) {
  for (std::size_t i = begin; i < end; ++i) {
    const bool is_nan = src[i] != src[i];
    const Bits16 bits = Element::narrow(is_nan ? float_of_bits(0x7FC00000u) : src[i]);
    std::memcpy(dst + 2 * i, &bits, sizeof bits);
  }
}

void encode_bf16(const float* src, std::size_t n, std::byte* dst) {
  for (std::size_t i = 0; i < n; i += hn::Lanes(U32())) {
    const auto bits = Bf16Lanes::rounded(one_nan(floats_at(src + i)));
    put(hn::TruncateTo(U16(), hn::ShiftRight<16>(bits)), U16(), dst + 2 * i);
  }
}

void add_bf16(const std::byte* src, std::size_t n, float* values, bool first) {
  for (std::size_t i = 0; i < n; i += hn::Lanes(U32())) {
    const auto wide = hn::PromoteTo(U32(), elements_at(U16(), src + 2 * i));
    give(hn::BitCast(F32(), hn::ShiftLeft<16>(wide)), values + i, first);
  }
}

#if MCCL_KERNELS_HARDWARE_F16

using F16 = hn::Rebind<hwy::float16_t, F32>;

void encode_fp16(const float* src, std::size_t n, std::byte* dst) {
  for (std::size_t i = 0; i < n; i += hn::Lanes(F32()))
    put(hn::DemoteTo(F16(), one_nan(floats_at(src + i))), F16(), dst + 2 * i);
}

void add_fp16(const std::byte* src, std::size_t n, float* values, bool first) {
  for (std::size_t i = 0; i < n; i += hn::Lanes(F32()))
    give(hn::PromoteTo(F32(), elements_at(F16(), src + 2 * i)), values + i, first);
}

#else

void encode_fp16(const float* src, std::size_t n, std::byte* dst) {
  narrow_some<kernels::F16>(src, 0, n, dst);
}

void add_fp16(const std::byte* src, std::size_t n, float* values, bool first) {
  for (std::size_t i = 0; i < n; ++i) {
    const float before = first ? 0 : values[i];
    widen_some<kernels::F16>(src, i, i + 1, values);
    if (!first) values[i] += before;
  }
}

#endif

void encode_vectors(Codec codec, const float* src, std::size_t blocks, std::byte* dst) {
  switch (codec) {
    case Codec::fp16:
      return encode_fp16(src, blocks * kElements, dst);
    case Codec::bf16:
      return encode_bf16(src, blocks * kElements, dst);
    case Codec::int8:
      return encode_scaled<Int8>(src, blocks, dst);
    case Codec::fp8_e4m3:
      return encode_scaled<Fp8E4M3>(src, blocks, dst);
    case Codec::fp8_e5m2:
      return encode_scaled<Fp8E5M2>(src, blocks, dst);
    case Codec::int4:
      return encode_scaled<Int4>(src, blocks, dst);
    case Codec::none:
    case Codec::topk:
      break;
  }
}

bool add_vectors(Codec codec, const std::byte* src, std::size_t blocks, float* values, bool first) {
  switch (codec) {
    case Codec::fp16:
      add_fp16(src, blocks * kElements, values, first);
      return true;
    case Codec::bf16:
      add_bf16(src, blocks * kElements, values, first);
      return true;
    case Codec::int8:
      return add_scaled<Int8>(src, blocks, values, first);
    case Codec::fp8_e4m3:
      return add_scaled<Fp8E4M3>(src, blocks, values, first);
    case Codec::fp8_e5m2:
      return add_scaled<Fp8E5M2>(src, blocks, values, first);
    case Codec::int4:
      return add_scaled<Int4>(src, blocks, values, first);
    case Codec::none:
    case Codec::topk:
      break;
  }
  return false;
}

void widen_vectors(DType dtype, const void* src, std::size_t n, float* dst) {
  const auto* from = static_cast<const std::byte*>(src);
  if (dtype == DType::bf16) return widen_some<kernels::Bf16>(from, 0, n, dst);
  std::size_t whole = 0;
#if MCCL_KERNELS_HARDWARE_F16
  for (; whole + hn::Lanes(F32()) <= n; whole += hn::Lanes(F32()))
    hn::StoreU(hn::PromoteTo(F32(), elements_at(F16(), from + 2 * whole)), F32(), dst + whole);
#endif
  widen_some<kernels::F16>(from, whole, n, dst);
}

void narrow_vectors(DType dtype, const float* src, std::size_t n, void* dst) {
  auto* to = static_cast<std::byte*>(dst);
  const std::size_t whole = n / hn::Lanes(F32()) * hn::Lanes(F32());
  if (dtype == DType::f16) {
    encode_fp16(src, whole, to);
    narrow_some<kernels::F16>(src, whole, n, to);
  } else {
    encode_bf16(src, whole, to);
    narrow_some<kernels::Bf16>(src, whole, n, to);
  }
}

/// `n` must be a multiple of the vector length, as it is for whole blocks.
void finish_vectors(float* values, std::size_t n, float divisor) {
  const auto by = hn::Set(F32(), divisor);
  for (std::size_t i = 0; i < n; i += hn::Lanes(F32()))
    hn::StoreU(one_nan(hn::Div(floats_at(values + i), by)), F32(), values + i);
}

}  // namespace mccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mccl::kernels {

HWY_EXPORT(encode_vectors);
HWY_EXPORT(add_vectors);
HWY_EXPORT(widen_vectors);
HWY_EXPORT(narrow_vectors);
HWY_EXPORT(finish_vectors);

void encode_blocks(Codec codec, const float* src, std::size_t blocks, std::byte* dst) {
  HWY_DYNAMIC_DISPATCH(encode_vectors)(codec, src, blocks, dst);
}

bool add_blocks(Codec codec, const std::byte* src, std::size_t blocks, float* values, bool first) {
  return HWY_DYNAMIC_DISPATCH(add_vectors)(codec, src, blocks, values, first);
}

void widen_halves(DType dtype, const void* src, std::size_t n, float* dst) {
  HWY_DYNAMIC_DISPATCH(widen_vectors)(dtype, src, n, dst);
}

void narrow_halves(DType dtype, const float* src, std::size_t n, void* dst) {
  HWY_DYNAMIC_DISPATCH(narrow_vectors)(dtype, src, n, dst);
}

void finish_values(float* values, std::size_t n, float divisor) {
  HWY_DYNAMIC_DISPATCH(finish_vectors)(values, n, divisor);
}

}  // namespace mccl::kernels
#endif  // HWY_ONCE
