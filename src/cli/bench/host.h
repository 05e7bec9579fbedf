// What the machine is.
#pragma once

#include <cstdint>
#include <string>

namespace mccl::cli::bench {

/// As the kernel calls it; the architecture where it has no name.
std::string cpu_name();
/// That this process may run on.
unsigned core_count();
/// 0 where it cannot be told.
std::uint64_t memory_bytes();

}  // namespace mccl::cli::bench
