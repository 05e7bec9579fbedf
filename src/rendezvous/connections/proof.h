// Secrets: nonces, keys of jobs, and proofs that a process knows a key.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace mccl::rendezvous {

inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::size_t kProofBytes = 32;
inline constexpr std::size_t kJobKeyLetters = 2 * kNonceBytes;

using Nonce = std::array<std::byte, kNonceBytes>;
using Proof = std::array<std::byte, kProofBytes>;

/// Returns unpredictable bytes. Throws Error if the system has no randomness.
Nonce make_nonce();
/// Returns the hexadecimal digits of a nonce.
std::string make_job_key();
std::string hex_of(std::span<const std::byte> bytes);

/// Returns HMAC-SHA256 under `key` over `label`, a zero byte, and `data`. The label states the
/// prover's role and the message, so that no proof can be used in place of another.
Proof prove(std::string_view key, std::string_view label, std::span<const std::byte> data);

/// Returns a key for one purpose, by HKDF with SHA-256 (RFC 5869). `salt` is hashed, and `label`
/// states the purpose.
Proof derive(std::string_view key, std::span<const std::byte> salt, std::string_view label);

/// Overwrites a secret that is no longer needed.
void erase(std::span<std::byte> secret);

/// Compares in constant time.
bool same_proof(std::span<const std::byte> a, std::span<const std::byte> b);

}  // namespace mccl::rendezvous
