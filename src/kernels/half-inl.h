// Converts 16-bit floats to two f32 vectors and back, compiled once per instruction set. Rounds to
// nearest even. Narrowing requires that every NaN is the one that one_nan() in float_ops-inl.h
// returns.

#if defined(MCCL_KERNELS_HALF_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MCCL_KERNELS_HALF_INL_H_
#undef MCCL_KERNELS_HALF_INL_H_
#else
#define MCCL_KERNELS_HALF_INL_H_
#endif

#include "kernels/fold_loop-inl.h"

// MCCL_KERNELS_HARDWARE_F16 is 1 for instruction sets that convert f16 in hardware. On the other
// sets, Highway would emulate the conversion and truncate, so MCCL's own code is used.
#undef MCCL_KERNELS_HARDWARE_F16
#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2) || (HWY_ARCH_ARM_A64 && HWY_TARGET != HWY_SCALAR)
#define MCCL_KERNELS_HARDWARE_F16 1
#else
#define MCCL_KERNELS_HARDWARE_F16 0
#endif

HWY_BEFORE_NAMESPACE();
namespace mccl::kernels::HWY_NAMESPACE {

using F32 = hn::ScalableTag<float>;
using U32 = hn::ScalableTag<std::uint32_t>;
using I32 = hn::ScalableTag<std::int32_t>;

/// The 16-bit floats of one step() as f32: the even and odd elements, or the first and second half.
struct Widened {
  hn::Vec<F32> first;
  hn::Vec<F32> second;
};

struct HalfLanes {
  using Values = Widened;

  HWY_INLINE std::size_t step() const { return hn::Lanes(U32()) * sizeof(std::uint32_t); }
  template <class Op>
  HWY_INLINE Values combine(const Op& op, Values a, Values b) const {
    return {op.combine(a.first, b.first), op.combine(a.second, b.second)};
  }
  template <class Op>
  HWY_INLINE Values finish(const Op& op, Values v) const {
    return {op.finish(v.first), op.finish(v.second)};
  }
};

/// bfloat16 is the upper half of an f32. Each u32 holds an even element in its lower half and an
/// odd element in its upper half.
struct Bf16Lanes : HalfLanes {
  HWY_INLINE Values load(const std::uint8_t* from) const {
    const auto both = load_at(U32(), from);
    return {hn::BitCast(F32(), hn::ShiftLeft<16>(both)),
            hn::BitCast(F32(), hn::And(both, hn::Set(U32(), 0xFFFF0000u)))};
  }
  HWY_INLINE void store(Values v, std::uint8_t* to) const {
    const auto even = hn::ShiftRight<16>(rounded(v.first));
    const auto odd = hn::And(rounded(v.second), hn::Set(U32(), 0xFFFF0000u));
    store_at(hn::Or(even, odd), U32(), to);
  }

  // Returns bits whose upper half is the rounded value; the caller drops the lower half. Adds just
  // under half a unit of the last kept bit, or exactly half if that bit is set, so that the carry
  // rounds to even. Infinity does not carry, because its lower half is zero.
  static HWY_INLINE hn::Vec<U32> rounded(hn::Vec<F32> v) {
    const auto bits = hn::BitCast(U32(), v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(U32(), 1));
    return hn::Add(bits, hn::Add(odd, hn::Set(U32(), 0x7FFF)));
  }
};

#if MCCL_KERNELS_HARDWARE_F16

struct F16Lanes : HalfLanes {
  using F16 = hn::Rebind<hwy::float16_t, F32>;

  HWY_INLINE Values load(const std::uint8_t* from) const {
    return {hn::PromoteTo(F32(), load_at(F16(), from)),
            hn::PromoteTo(F32(), load_at(F16(), from + step() / 2))};
  }
  HWY_INLINE void store(Values v, std::uint8_t* to) const {
    store_at(hn::DemoteTo(F16(), v.first), F16(), to);
    store_at(hn::DemoteTo(F16(), v.second), F16(), to + step() / 2);
  }
};

#else

// widened() and narrowed() are not inlined, because each loop would contain a dozen copies of code
// that few machines run.
struct F16Lanes : HalfLanes {
  HWY_INLINE Values load(const std::uint8_t* from) const {
    const auto both = load_at(U32(), from);
    return {widened(hn::And(both, hn::Set(U32(), 0xFFFF))), widened(hn::ShiftRight<16>(both))};
  }
  HWY_INLINE void store(Values v, std::uint8_t* to) const {
    store_at(hn::Or(narrowed(v.first), hn::ShiftLeft<16>(narrowed(v.second))), U32(), to);
  }

 private:
  HWY_NOINLINE static hn::Vec<F32> widened(hn::Vec<U32> half) {
    const auto magnitude = hn::And(half, hn::Set(U32(), 0x7FFF));
    const auto sign = hn::ShiftLeft<16>(hn::Xor(half, magnitude));
    const auto order = hn::BitCast(I32(), magnitude);
    const auto shifted = hn::ShiftLeft<13>(magnitude);
    // The exponent's bias is 15 in f16 and 127 in f32. Infinity and NaN have the largest exponent
    // in both.
    const auto normal = hn::Add(shifted, hn::Set(U32(), (127u - 15u) << 23));
    const auto special = hn::Or(shifted, hn::Set(U32(), 0x7F800000u));
    // A subnormal m * 2^-24 equals (1 + m / 2^10) * 2^-14 - 2^-14.
    const auto least = hn::Set(U32(), (127u - 14u) << 23);
    const auto subnormal = hn::BitCast(
        U32(), hn::Sub(hn::BitCast(F32(), hn::Or(shifted, least)), hn::BitCast(F32(), least)));
    const auto is_subnormal = hn::Lt(order, hn::Set(I32(), 0x0400));
    const auto is_special = hn::Gt(order, hn::Set(I32(), 0x7BFF));
    const auto finite = hn::IfThenElse(hn::RebindMask(U32(), is_subnormal), subnormal, normal);
    const auto value = hn::IfThenElse(hn::RebindMask(U32(), is_special), special, finite);
    return hn::BitCast(F32(), hn::Or(value, sign));
  }

  HWY_NOINLINE static hn::Vec<U32> narrowed(hn::Vec<F32> v) {
    const auto bits = hn::BitCast(U32(), v);
    const auto magnitude = hn::And(bits, hn::Set(U32(), 0x7FFFFFFFu));
    const auto sign = hn::ShiftRight<16>(hn::Xor(bits, magnitude));
    const auto order = hn::BitCast(I32(), magnitude);
    // Rounds as Bf16Lanes::rounded does, after the bias of the exponent is changed.
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(U32(), 1));
    const auto rounding = hn::Add(odd, hn::Set(U32(), 0xFFF));
    const auto rebiased = hn::Sub(magnitude, hn::Set(U32(), (127u - 15u) << 23));
    const auto normal = hn::ShiftRight<13>(hn::Add(rebiased, rounding));
    // The last bit of 0.5f has the value 2^-24, as in an f16 subnormal, so the addition rounds to
    // f16.
    const auto half = hn::Set(F32(), 0.5f);
    const auto sum = hn::Add(hn::BitCast(F32(), magnitude), half);
    const auto subnormal = hn::Sub(hn::BitCast(U32(), sum), hn::BitCast(U32(), half));
    const auto is_subnormal = hn::Lt(order, hn::Set(I32(), (127 - 14) << 23));
    const auto is_too_large = hn::Gt(order, hn::Set(I32(), 0x477FFFFF));  // 2^16 and above
    const auto is_nan = hn::Gt(order, hn::Set(I32(), 0x7F800000));
    const auto finite = hn::IfThenElse(hn::RebindMask(U32(), is_subnormal), subnormal, normal);
    const auto special = hn::IfThenElse(hn::RebindMask(U32(), is_nan), hn::Set(U32(), 0x7E00),
                                        hn::Set(U32(), 0x7C00));
    const auto value = hn::IfThenElse(hn::RebindMask(U32(), is_too_large), special, finite);
    return hn::Or(value, sign);
  }
};

#endif  // MCCL_KERNELS_HARDWARE_F16

}  // namespace mccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MCCL_KERNELS_HALF_INL_H_
