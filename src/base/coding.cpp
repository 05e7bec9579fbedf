#include "base/coding.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "base/nearest.h"
#include "base/value_text.h"
#include "mccl/compression.h"
#include "mccl/error.h"

namespace mccl {
namespace {

constexpr std::size_t kBlock = 128;
constexpr std::size_t kBlockOfTopk = 4096;
constexpr std::size_t kScaleBytes = sizeof(float);
/// Maximum number of elements that topk keeps in a block of a sum. If a contribution's block keeps
/// more elements than this, a block of the sum keeps as many as the contribution's. Without the
/// limit, a block of the sum of many ranks would be longer than the elements that it encodes.
constexpr std::size_t kMostKeptOfSums = kBlockOfTopk / 4;
/// Bytes of one kept element: its index in the block, and its value.
constexpr std::size_t kKeptBytes = sizeof(std::uint16_t) + sizeof(float);

}  // namespace

std::size_t Coding::block() const {
  switch (codec) {
    case Codec::none:
      return 1;
    case Codec::topk:
      return kBlockOfTopk;
    default:
      return kBlock;
  }
}

std::size_t Coding::block_bytes(Coded form) const {
  switch (codec) {
    case Codec::none:
      return 0;
    case Codec::fp16:
    case Codec::bf16:
      return 2 * kBlock;
    case Codec::int8:
    case Codec::fp8_e4m3:
    case Codec::fp8_e5m2:
      return kScaleBytes + kBlock;
    case Codec::int4:
      return kScaleBytes + kBlock / 2;
    case Codec::topk:
      return kKeptBytes * (form == Coded::sum ? kept_of_sum : kept);
  }
  return 0;
}

std::size_t Coding::bytes(std::size_t count, Coded form) const {
  return (count / block() + (count % block() != 0 ? 1 : 0)) * block_bytes(form);
}

Coding coding_of(const Compression& compression, int ranks) {
  Coding coding{compression.codec, 0, 0};
  if (compression.codec != Codec::topk) return coding;
  const double share = std::ceil(compression.ratio * static_cast<double>(kBlockOfTopk));
  const auto kept =
      static_cast<std::size_t>(std::clamp(share, 1.0, static_cast<double>(kBlockOfTopk)));
  coding.kept = static_cast<std::uint16_t>(kept);
  coding.kept_of_sum = static_cast<std::uint16_t>(
      std::min(kept * static_cast<std::size_t>(ranks), std::max(kept, kMostKeptOfSums)));
  return coding;
}

std::string describe(const Coding& coding) {
  if (coding.codec != Codec::topk) return std::string(name_of(coding.codec));
  return fmt::format("topk of {} in {}", coding.kept, coding.block());
}

bool may_be_coded(Collective collective, DType dtype, ReduceKind kind) {
  return (collective == Collective::all_reduce || collective == Collective::reduce_scatter) &&
         is_floating(dtype) && (kind == ReduceKind::sum || kind == ReduceKind::avg);
}

bool shortens(const Coding& coding, DType dtype) {
  const std::size_t bytes =
      std::max(coding.block_bytes(Coded::contribution), coding.block_bytes(Coded::sum));
  return coding && bytes < coding.block() * size_of(dtype);
}

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
  throw InvalidArgument(fmt::format(
      "{} is not a codec; {}. MCCL_COMPRESSION and the options of sums also accept auto",
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
