// Facts about this machine.
#pragma once

#include <cstdint>
#include <string>

namespace mccl::cli::bench {

/// Returns the model name of the CPU, or its architecture if the system reports no name.
std::string cpu_name();
/// Returns the number of cores on which this process may run.
unsigned core_count();
/// Returns the size of physical memory, in bytes; 0 if it is unknown.
std::uint64_t memory_bytes();

}  // namespace mccl::cli::bench
