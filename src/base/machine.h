// Page and cache line sizes of this machine.
#pragma once

#include <cstddef>

namespace mccl {

/// Page size in bytes: usually 4 KiB, 16 KiB on Macs with Apple's chips.
std::size_t page_bytes();

/// Cache line size in bytes: usually 64, 128 on Apple's chips.
std::size_t line_bytes();

/// The longest cache line of any processor that MCCL is built for, in bytes. Where space allows,
/// data that different processes or threads write is placed this far apart, to avoid false sharing.
inline constexpr std::size_t kLongestLine = 128;

}  // namespace mccl
