// Facts about this machine.
#pragma once

#include <cstdint>
#include <string>

namespace mccl::cli::bench {

/// Returns the kernel's name of the CPU, or the architecture if there is none.
std::string cpu_name();
/// Returns the number of cores on which this process may run.
unsigned core_count();
/// Returns the bytes of physical memory; 0 if they are unknown.
std::uint64_t memory_bytes();

}  // namespace mccl::cli::bench
