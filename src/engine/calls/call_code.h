// Binary form of a Call for other processes. It is sent in frames and control messages, and labels
// a rank's data in the node's shared memory window.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/calls/call.h"

namespace mccl::engine {

/// Encodes a call, little-endian and without padding. Omits the peer and the tag, which only
/// point-to-point calls have.
struct CallCode {
  std::uint8_t collective = 0;
  std::uint8_t dtype = 0;
  std::uint8_t kind = 0;
  std::uint8_t codec = 0;
  /// The root; Coding::kept if there is a codec, because such calls have no root.
  std::int32_t root = 0;
  std::uint64_t count = 0;
  std::uint64_t counts_hash = 0;
  std::uint64_t sequence = 0;
};
static_assert(sizeof(CallCode) == 32);

CallCode encode(const Call& call);
/// Returns nullopt for bytes that encode() cannot have written.
std::optional<Call> decode(const CallCode& code);

/// Returns a 64-bit hash of the call.
std::uint64_t fingerprint_of(const Call& call);

}  // namespace mccl::engine
