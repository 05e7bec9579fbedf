// The cache that the cores of this machine share.
#pragma once

#include <cstddef>
#include <string>

namespace mccl {

/// Bytes of the caches of the last level, all of them together. A guess where the system does not
/// tell.
std::size_t shared_cache_bytes();

/// The same from a folder like /sys/devices/system/cpu; 0 where it does not tell.
std::size_t shared_cache_bytes_in(const std::string& cpus);

}  // namespace mccl
