#pragma once

#include <cstddef>
#include <string>

namespace mccl::rendezvous {

inline constexpr std::size_t kJobKeyLetters = 64;

/// Returns a new secret of 256 bits, as kJobKeyLetters hexadecimal digits. Throws Error if the
/// system has no randomness.
std::string make_job_key();

}  // namespace mccl::rendezvous
