// The size of the cache that the cores of this machine share.
#pragma once

#include <cstddef>
#include <string>

namespace mccl {

/// Total bytes of all last-level caches. 16 MiB if the system does not report them.
std::size_t shared_cache_bytes();

/// Returns the total bytes of all last-level caches, read from a folder like
/// /sys/devices/system/cpu; 0 if the folder does not contain this information.
std::size_t shared_cache_bytes_in(const std::string& cpus);

}  // namespace mccl
