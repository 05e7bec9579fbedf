// The arithmetic of the kernels, shared with tests on the host. Elements are converted to f32,
// summed in rank order, and converted back, which rounds once.
#pragma once

#include "kernels/elements.h"

namespace mccl::kernels::cuda {

using kernels::Bf16;
using kernels::bits_of;
using kernels::F16;
using kernels::F32;
using kernels::float_of_bits;

/// The elements in sixteen bytes, converted to f32.
template <typename T>
struct Wide {
  static constexpr int kCount = 16 / static_cast<int>(sizeof(typename T::Bits));
  float lanes[kCount];
};

/// Starts a sum with its first operand.
template <typename T>
MCCL_BOTH void set(Wide<T>& sum, const typename T::Bits* elements) {
  for (int i = 0; i < Wide<T>::kCount; ++i) sum.lanes[i] = T::widen(elements[i]);
}

template <typename T>
MCCL_BOTH void add(Wide<T>& sum, const typename T::Bits* elements) {
  for (int i = 0; i < Wide<T>::kCount; ++i) sum.lanes[i] += T::widen(elements[i]);
}

/// Divides the sum by `divisor` and rounds it to elements. `divisor` is 1 except for an average.
/// Division by a power of two is replaced by multiplication with its inverse, which is
/// faster.
template <typename T>
MCCL_BOTH void round_to(typename T::Bits* elements, const Wide<T>& sum, float divisor) {
  const bool is_power = (bits_of(divisor) & 0x7fffffU) == 0;
  const float inverse = float_of_bits((254U << 23) - bits_of(divisor));  // used only if `is_power`
  for (int i = 0; i < Wide<T>::kCount; ++i) {
    elements[i] = T::narrow(is_power ? sum.lanes[i] * inverse : sum.lanes[i] / divisor);
  }
}

}  // namespace mccl::kernels::cuda
