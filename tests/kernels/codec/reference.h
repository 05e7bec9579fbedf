// Reference implementation of the codecs' rounding, element by element, written for clarity.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "base/coding.h"
#include "kernels/reference.h"

namespace mccl::kernels::reference {

inline float nan() { return std::bit_cast<float>(0x7FC00000U); }

/// Rounds to the nearest number with `places` binary places of fraction, ties to even. Exponents
/// begin at 1 - bias; below that the steps are equal.
inline double nearest_float(double x, int places, int bias) {
  if (x == 0) return x;
  const int exponent = std::max(std::ilogb(x), 1 - bias);
  const double step = std::ldexp(1.0, exponent - places);
  return std::copysign(std::nearbyint(std::abs(x) / step) * step, x);
}

inline float rounded_to_scale(float x, float largest, float most, int places, int bias) {
  const float scaled = x * (most / largest);
  const float scale = largest / most;
  const double found =
      places == 0 ? std::nearbyint(scaled) + 0.0 : nearest_float(scaled, places, bias);
  return static_cast<float>(found) * scale;
}

inline std::vector<float> rounded_block(const std::vector<float>& block, float most, int places,
                                        int bias) {
  float largest = 0;
  bool finite = true;
  for (const float x : block) {
    finite = finite && std::isfinite(x);
    largest = std::max(largest, std::abs(x));
  }
  std::vector<float> found;
  for (const float x : block) {
    if (!finite) {
      found.push_back(nan());
    } else if (largest < 0x1p-100F) {
      found.push_back(places == 0 ? 0.0F : std::copysign(0.0F, x * 0.0F));
    } else {
      found.push_back(rounded_to_scale(x, largest, most, places, bias));
    }
  }
  return found;
}

inline std::vector<float> largest_of_block(const std::vector<float>& block, std::size_t kept) {
  std::vector<std::size_t> places(block.size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  const auto size = [&](std::size_t i) {
    return std::bit_cast<std::uint32_t>(block[i]) & 0x7FFFFFFFU;
  };
  std::stable_sort(places.begin(), places.end(),
                   [&](std::size_t a, std::size_t b) { return size(a) > size(b); });
  std::vector<float> found(block.size(), 0.0F);
  for (std::size_t i = 0; i < std::min(kept, places.size()); ++i) {
    const float x = block[places[i]];
    if (x != 0) found[places[i]] = std::isnan(x) ? nan() : x;
  }
  return found;
}

inline std::vector<float> round_trip_of_block(const Coding& coding, Coded form,
                                              const std::vector<float>& block) {
  std::vector<float> found;
  switch (coding.codec) {
    case Codec::none:
      return block;
    case Codec::fp16:
      for (const float x : block) found.push_back(widen_f16(narrow_f16(x)));
      return found;
    case Codec::bf16:
      for (const float x : block) found.push_back(widen_bf16(narrow_bf16(x)));
      return found;
    case Codec::int8:
      return rounded_block(block, 127, 0, 0);
    case Codec::fp8_e4m3:
      return rounded_block(block, 448, 3, 7);
    case Codec::fp8_e5m2:
      return rounded_block(block, 57344, 2, 15);
    case Codec::int4:
      return rounded_block(block, 7, 0, 0);
    case Codec::topk:
      return largest_of_block(block, form == Coded::sum ? coding.kept_of_sum : coding.kept);
  }
  return found;
}

/// Returns the values after encoding and decoding.
inline std::vector<float> round_trip(const Coding& coding, Coded form,
                                     const std::vector<float>& values) {
  std::vector<float> found;
  for (std::size_t at = 0; at < values.size(); at += coding.block()) {
    const std::size_t count = std::min(coding.block(), values.size() - at);
    std::vector<float> block(values.begin() + static_cast<std::ptrdiff_t>(at),
                             values.begin() + static_cast<std::ptrdiff_t>(at + count));
    const std::vector<float> rounded = round_trip_of_block(coding, form, block);
    found.insert(found.end(), rounded.begin(), rounded.end());
  }
  return found;
}

/// Returns the result of a reduce_scatter on the rank whose parts are `given`, one from each rank
/// (or node). For an average, the divisor is the number of ranks; otherwise 1.
inline std::vector<float> part_in(const Coding& coding,
                                  const std::vector<std::vector<float>>& given, int divisor) {
  std::vector<float> sum;
  for (const auto& values : given) {
    const std::vector<float> rounded = round_trip(coding, Coded::contribution, values);
    if (sum.empty()) {
      sum = rounded;
      continue;
    }
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += rounded[i];
  }
  for (float& x : sum) {
    x /= static_cast<float>(divisor);
    if (std::isnan(x)) x = nan();
  }
  return sum;
}

/// Returns the result of an all_reduce, with the same arguments.
inline std::vector<float> sum_in(const Coding& coding, const std::vector<std::vector<float>>& given,
                                 int divisor) {
  return round_trip(coding, Coded::sum, part_in(coding, given, divisor));
}

}  // namespace mccl::kernels::reference
