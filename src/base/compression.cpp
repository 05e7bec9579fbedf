#include "mccl/compression.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <string>

#include "base/nearest.h"
#include "base/value_text.h"
#include "mccl/error.h"

namespace mccl {
namespace {

constexpr std::array<std::string_view, kCodecCount> kNames = {
    "none", "fp16", "bf16", "int8", "fp8_e4m3", "fp8_e5m2", "int4", "topk"};

}  // namespace

std::string_view name_of(Codec codec) { return kNames[static_cast<std::size_t>(codec)]; }

Codec codec_named(std::string_view name) {
  if (name.empty()) return Codec::none;
  if (name == "fp8") return Codec::fp8_e4m3;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Codec>(i);
  }
  throw InvalidArgument(
      fmt::format("{} is not a codec; {}, and also auto where a codec is chosen for sums",
                  in_quotes(name), choices_near(name, kNames)));
}

Compression compression_named(std::string_view name, double ratio) {
  if (name == "auto") return {Codec::bf16, ratio, true};
  return {codec_named(name), ratio};
}

std::string describe(const Compression& compression) {
  if (compression.if_faster) return "auto";
  if (compression.codec != Codec::topk) return std::string(name_of(compression.codec));
  return fmt::format("topk of {:.3g} %", 100 * compression.ratio);
}

}  // namespace mccl
