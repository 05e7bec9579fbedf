// What the processor's memory is made of.
#pragma once

#include <cstddef>

namespace mccl {

/// What the system hands memory out in: 4 KiB mostly, 16 KiB on Macs with Apple's chips.
std::size_t page_bytes();

/// What caches move: 64 bytes mostly, 128 on Apple's chips.
std::size_t line_bytes();

/// The longest line of any processor that MCCL is built for. What different processes or threads
/// write lies so far apart where that costs nothing.
inline constexpr std::size_t kLongestLine = 128;

}  // namespace mccl
