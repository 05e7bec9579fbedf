// Keeps secrets in ordinary memory from others.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>

#include "mccl/secret.h"

namespace mccl {

/// Overwrites a secret that is no longer needed.
inline void erase(std::span<std::byte> secret) noexcept {
  if (!secret.empty()) std::memset(secret.data(), 0, secret.size());
  // Claims to read the bytes, so that the compiler cannot leave out the writes.
  asm volatile("" : : "r"(secret.data()) : "memory");
}

/// Leaves the pages that contain these bytes out of core dumps, if the system can (on Linux,
/// MADV_DONTDUMP). The bytes may belong to no mapping.
void leave_out_of_dumps(const void* begin, std::size_t bytes) noexcept;

/// Makes the system write no core dumps of this process (on Linux, PR_SET_DUMPABLE). Programs that
/// this process executes are not affected.
void forbid_core_dumps() noexcept;

/// Moves a secret out of ordinary memory, which is erased.
inline SecretBytes take_secret(std::span<char> bytes) {
  SecretBytes secret(std::string_view(bytes.data(), bytes.size()));
  erase(std::as_writable_bytes(bytes));
  return secret;
}

}  // namespace mccl
