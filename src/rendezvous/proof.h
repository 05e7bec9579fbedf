// The two cryptographic tools of the handshake: nonces and keyed proofs.
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

/// Unpredictable. Throws Error when the system has no randomness to give.
Nonce make_nonce();

/// HMAC-SHA256 under `key` over `label`, a zero byte, and `data`. The label says whose proof of
/// what this is, so that no proof can be used as another.
Proof prove(std::string_view key, std::string_view label, std::span<const std::byte> data);

/// In time that does not depend on where they differ.
bool same_proof(std::span<const std::byte> a, std::span<const std::byte> b);

}  // namespace mccl::rendezvous
