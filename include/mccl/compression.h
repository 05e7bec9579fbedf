// How sums of floats may travel: in fewer bytes, and rounded.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "mccl/export.h"

namespace mccl {

/// What a block of elements is rounded to on its way. `none` is exact.
enum class Codec : std::uint8_t {
  none,
  fp16,      ///< IEEE binary16: 11 bits of precision, from 6e-8 to 65504.
  bf16,      ///< bfloat16: 8 bits of precision, the range of f32.
  int8,      ///< 128 elements as integers from -127 to 127 times one f32.
  fp8_e4m3,  ///< 128 elements of 4 bits of precision, from 2e-9 to 448 times one f32.
  fp8_e5m2,  ///< The same with 3 bits of precision, from 1.5e-5 to 57344.
  int4,      ///< 128 elements as integers from -7 to 7 times one f32.
  topk,      ///< Of each 4096 elements those of largest magnitude; the others are zero.
};
inline constexpr int kCodecCount = 8;

/// A codec and what it is told.
struct Compression {
  Codec codec = Codec::none;
  /// topk: the share of the elements that each rank sends; above 0, at most 1.
  double ratio = 0.01;
  /// Only where it is predicted to be a tenth faster than the exact sum or more, and of f32.
  bool if_faster = false;

  friend bool operator==(const Compression&, const Compression&) = default;
};

MCCL_API std::string_view name_of(Codec codec);
/// By its name; "fp8" is fp8_e4m3, and "none" and "" are none. Throws InvalidArgument for another,
/// with the nearest name.
MCCL_API Codec codec_named(std::string_view name);
/// The same with "auto", which is bf16 where it is faster: of the codecs that keep the range of f32
/// the one that needs no care.
MCCL_API Compression compression_named(std::string_view name, double ratio = 0.01);
/// "topk of 1 %", "int8", "auto".
MCCL_API std::string describe(const Compression& compression);

}  // namespace mccl
