// Sizes of pages, cache lines and memory of this machine.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mccl {

/// Page size in bytes: usually 4 KiB, 16 KiB on Macs with Apple's chips.
std::size_t page_bytes();

/// Size of the machine's memory in bytes; 0 if the system does not say.
std::uint64_t memory_bytes();

/// Cache line size in bytes: usually 64, 128 on Apple's chips.
std::size_t line_bytes();

/// The longest cache line of any processor that MCCL is built for, in bytes. Where space allows,
/// data that different processes or threads write is placed this far apart, to avoid false sharing.
inline constexpr std::size_t kLongestLine = 128;

}  // namespace mccl
