#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace mccl::kernels {

/// CRC-32C (Castagnoli, RFC 3720 appendix B.4) of `data`, continuing from `crc` (0 to begin).
/// crc32c(crc32c(0, a), b) == crc32c(0, a followed by b).
std::uint32_t crc32c(std::uint32_t crc, std::span<const std::byte> data);

// The implementations of crc32c(), which calls the fastest one that this machine supports.

/// The polynomial of CRC-32C, with its bits in transmission order: the coefficient of x^31 is bit
/// 0.
inline constexpr std::uint32_t kCrc32cPolynomial = 0x82F63B78;

std::uint32_t crc32c_by_table(std::uint32_t crc, std::span<const std::byte> data);

/// True if this machine computes CRC-32C in hardware and this build supports it.
bool crc32c_in_hardware();

/// Requires crc32c_in_hardware().
std::uint32_t crc32c_by_hardware(std::uint32_t crc, std::span<const std::byte> data);

}  // namespace mccl::kernels
