#pragma once

#include <cstddef>
#include <string>

namespace mccl::rendezvous {

inline constexpr std::size_t kJobKeyLetters = 64;

/// A fresh secret of 256 bits, as kJobKeyLetters hexadecimal digits. Throws Error when the system
/// has no randomness.
std::string make_job_key();

}  // namespace mccl::rendezvous
