#pragma once

#include <string>

namespace mccl::rendezvous {

/// A fresh secret of 256 bits, as hexadecimal text. Throws Error when the system has no randomness.
std::string make_job_key();

}  // namespace mccl::rendezvous
