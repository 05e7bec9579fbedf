// Sums, products, minima and maxima of two arrays of 16-bit floats on a Mac's GPU: out[i] = a[i] op
// b[i], computed in f32 and rounded once, as in reduce.h. `out` may be `a` or `b`. Tests on the
// host compile this text too.
#include "kernels/elements.h"

namespace mccl {
namespace kernels {

/// Rounds to 16 bits and returns the same NaN for every NaN. With fast arithmetic, a NaN may remain
/// unrecognised.
template <typename T>
MCCL_BOTH Bits16 finished(float value) {
  return T::narrow(value != value ? float_of_bits(0x7fc00000U) : value);
}

struct Sum {
  static MCCL_BOTH float combine(float a, float b) { return a + b; }
};

struct Product {
  static MCCL_BOTH float combine(float a, float b) { return a * b; }
};

/// Maps numbers to integers in the same order, with -0 before +0. Subnormals keep their order too,
/// although a GPU may treat them as 0 in comparisons of floats.
MCCL_BOTH Bits32 place_of(float value) {
  const Bits32 bits = bits_of(value);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

struct Min {
  static MCCL_BOTH float combine(float a, float b) {
    if (a != a) return a;
    if (b != b) return b;
    return place_of(a) < place_of(b) ? a : b;
  }
};

struct Max {
  static MCCL_BOTH float combine(float a, float b) {
    if (a != a) return a;
    if (b != b) return b;
    return place_of(b) < place_of(a) ? a : b;
  }
};

}  // namespace kernels
}  // namespace mccl

#define MCCL_REDUCE(name, Element, Operation)                                                    \
  kernel void name(const device mccl::kernels::Bits16* a [[buffer(0)]],                          \
                   const device mccl::kernels::Bits16* b [[buffer(1)]],                          \
                   device mccl::kernels::Bits16* out [[buffer(2)]],                              \
                   constant mccl::kernels::Bits32& count [[buffer(3)]],                          \
                   mccl::kernels::Bits32 at [[thread_position_in_grid]]) {                       \
    if (at >= count) return;                                                                     \
    using T = mccl::kernels::Element;                                                            \
    out[at] = mccl::kernels::finished<T>(                                                        \
        mccl::kernels::Operation::combine(T::widen(a[at]), T::widen(b[at])));                    \
  }

MCCL_REDUCE(mccl_sum_f16, F16, Sum)
MCCL_REDUCE(mccl_product_f16, F16, Product)
MCCL_REDUCE(mccl_min_f16, F16, Min)
MCCL_REDUCE(mccl_max_f16, F16, Max)
MCCL_REDUCE(mccl_sum_bf16, Bf16, Sum)
MCCL_REDUCE(mccl_product_bf16, Bf16, Product)
MCCL_REDUCE(mccl_min_bf16, Bf16, Min)
MCCL_REDUCE(mccl_max_bf16, Bf16, Max)
