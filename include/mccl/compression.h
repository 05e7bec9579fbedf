// Codecs: lossy formats that reduce the bytes sent for sums of floats.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "mccl/export.h"

namespace mccl {

/// Format of a block of elements on the wire. `none` is exact.
enum class Codec : std::uint8_t {
  none,
  fp16,  ///< IEEE binary16: 11 bits of precision, magnitudes from 6e-8 to 65504.
  bf16,  ///< bfloat16: 8 bits of precision, the range of f32.
  int8,  ///< Blocks of 128 elements: integers from -127 to 127 and one f32 factor.
  /// Blocks of 128 elements: FP8 E4M3 numbers (4 bits of precision, magnitudes from 2e-3 to 448)
  /// and one f32 factor.
  fp8_e4m3,
  /// Blocks of 128 elements: FP8 E5M2 numbers (3 bits of precision, magnitudes from 1.5e-5 to
  /// 57344) and one f32 factor.
  fp8_e5m2,
  int4,  ///< Blocks of 128 elements: integers from -7 to 7 and one f32 factor.
  topk,  ///< The largest elements by magnitude of each block of 4096; all others become zero.
};
inline constexpr int kCodecCount = 8;

/// A codec and its parameters.
struct Compression {
  Codec codec = Codec::none;  ///< The format on the wire.
  /// topk only: share of the elements that each rank sends; above 0, at most 1.
  double ratio = 0.01;
  /// If true, the codec is used only where it is predicted to make a sum of f32 at least a tenth
  /// faster. All other sums are exact.
  bool if_faster = false;

  friend bool operator==(const Compression&, const Compression&) = default;
};

/// The name of the codec, such as "fp8_e4m3". The text is static.
MCCL_API std::string_view name_of(Codec codec);
/// Codec of the given name. "fp8" means fp8_e4m3, and the empty name means none. Throws
/// InvalidArgument for any other name; the message suggests a similar name if there is one.
MCCL_API Codec codec_named(std::string_view name);
/// Returns the codec of the given name, with `ratio` as its parameter if it is topk. Also accepts
/// "auto", which means bf16 with `if_faster`, because bf16 has the range of f32 and needs no
/// tuning. Throws InvalidArgument for any other name.
MCCL_API Compression compression_named(std::string_view name, double ratio = 0.01);
/// Text for messages, such as "topk of 1 %", "int8" or "auto".
MCCL_API std::string describe(const Compression& compression);

}  // namespace mccl
