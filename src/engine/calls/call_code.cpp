#include "engine/calls/call_code.h"

#include <array>
#include <bit>

namespace mccl::engine {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian");

CallCode encode(const Call& call) {
  return {.collective = static_cast<std::uint8_t>(call.collective),
          .dtype = static_cast<std::uint8_t>(call.dtype),
          .kind = static_cast<std::uint8_t>(call.kind),
          .codec = static_cast<std::uint8_t>(call.coding.codec),
          .root = call.coding ? call.coding.kept : call.root,
          .count = call.count,
          .counts_hash = call.counts_hash,
          .sequence = call.sequence};
}

std::optional<Call> decode(const CallCode& code) {
  if (code.codec >= kCodecCount || code.collective >= kCollectiveCount ||
      code.dtype >= kDTypeCount || code.kind >= kReduceKindCount) {
    return std::nullopt;
  }
  Call call;
  call.collective = static_cast<Collective>(code.collective);
  call.dtype = static_cast<DType>(code.dtype);
  call.kind = static_cast<ReduceKind>(code.kind);
  call.root = code.root;
  if (code.codec != 0) {
    if (code.root < 0 || code.root > UINT16_MAX) return std::nullopt;
    call.root = -1;
    call.coding.codec = static_cast<Codec>(code.codec);
    call.coding.kept = static_cast<std::uint16_t>(code.root);
  }
  call.count = code.count;
  call.counts_hash = code.counts_hash;
  call.sequence = code.sequence;
  return call;
}

std::uint64_t fingerprint_of(const Call& call) {
  const auto words = std::bit_cast<std::array<std::uint64_t, 4>>(encode(call));
  // Odd factors are invertible, so a change in a single field always changes the sum.
  return words[0] * 0x9e3779b97f4a7c15ULL + words[1] * 0xc2b2ae3d27d4eb4fULL +
         words[2] * 0x27d4eb2f165667c5ULL + words[3] * 0x165667b19e3779f9ULL;
}

}  // namespace mccl::engine
