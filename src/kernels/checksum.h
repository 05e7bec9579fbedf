#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace mccl::kernels {

/// CRC-32C (Castagnoli, RFC 3720 appendix B.4) of `data`, continuing from `crc` (0 to begin).
/// crc32c(crc32c(0, a), b) == crc32c(0, a followed by b).
std::uint32_t crc32c(std::uint32_t crc, std::span<const std::byte> data);

}  // namespace mccl::kernels
