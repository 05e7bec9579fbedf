// The two cryptographic primitives of the handshake: nonces and keyed proofs.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace mccl::rendezvous {

inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::size_t kProofBytes = 32;

using Nonce = std::array<std::byte, kNonceBytes>;
using Proof = std::array<std::byte, kProofBytes>;

/// Returns unpredictable bytes. Throws Error if the system has no randomness.
Nonce make_nonce();

/// Returns HMAC-SHA256 under `key` over `label`, a zero byte, and `data`. The label states the
/// prover's role and the message, so that no proof can be used in place of another.
Proof prove(std::string_view key, std::string_view label, std::span<const std::byte> data);

/// Compares in constant time.
bool same_proof(std::span<const std::byte> a, std::span<const std::byte> b);

}  // namespace mccl::rendezvous
