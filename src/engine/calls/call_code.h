// How a Call is written for another process: in frames, in control messages, and beside what a rank
// publishes to its node.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/calls/call.h"

namespace mccl::engine {

/// Little-endian, without gaps. What concerns point to point alone, peer and tag, is not in it.
struct CallCode {
  std::uint8_t collective = 0;
  std::uint8_t dtype = 0;
  std::uint8_t kind = 0;
  std::uint8_t codec = 0;
  std::int32_t root = 0;  ///< Where there is a codec, and so no root: Coding::kept.
  std::uint64_t count = 0;
  std::uint64_t counts_hash = 0;
  std::uint64_t sequence = 0;
};
static_assert(sizeof(CallCode) == 32);

CallCode encode(const Call& call);
/// Nothing for what encode cannot have written.
std::optional<Call> decode(const CallCode& code);

/// Differs for calls that differ, but for accidents of 64 bits.
std::uint64_t fingerprint_of(const Call& call);

}  // namespace mccl::engine
