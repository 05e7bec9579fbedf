// Computes CRC-32C with the processor's instruction. The instruction processes 8 bytes at a time
// but has a latency of several cycles. So three parts of the data are processed at the same time,
// and their CRCs are combined.
//
// A CRC is a polynomial modulo P. Appending n zero bytes multiplies the polynomial by x^(8n). To
// combine the CRCs of three parts, each CRC is multiplied by x^(8n), where n is the number of bytes
// that follow its part, and the products are added (XOR).
#include <cstring>

#include "kernels/checksum.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define MCCL_CRC_TARGET __attribute__((target("sse4.2,pclmul")))
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#define MCCL_CRC_TARGET
#endif

namespace mccl::kernels {

#if defined(MCCL_CRC_TARGET)

namespace {

constexpr std::uint32_t times_x(std::uint32_t p) {
  return (p >> 1) ^ ((p & 1) ? kCrc32cPolynomial : 0);
}

/// Returns x^n modulo P.
constexpr std::uint32_t power_of_x(std::size_t n) {
  std::uint32_t p = 0x80000000;
  for (; n > 0; --n) p = times_x(p);
  return p;
}

#if defined(__x86_64__)

MCCL_CRC_TARGET inline std::uint32_t step1(std::uint32_t crc, std::uint8_t byte) {
  return _mm_crc32_u8(crc, byte);
}

MCCL_CRC_TARGET inline std::uint32_t step8(std::uint32_t crc, std::uint64_t bytes) {
  return static_cast<std::uint32_t>(_mm_crc32_u64(crc, bytes));
}

// The CRC instruction multiplies its 64-bit operand by x^32, and a carry-less product of two
// bit-reversed numbers is multiplied by x. The exponent 8 * bytes - 33 compensates for both.
constexpr std::uint32_t factor_to_append(std::size_t bytes) { return power_of_x(8 * bytes - 33); }

MCCL_CRC_TARGET inline std::uint32_t multiply(std::uint32_t crc, std::uint32_t factor) {
  const __m128i product = _mm_clmulepi64_si128(_mm_cvtsi32_si128(static_cast<int>(crc)),
                                               _mm_cvtsi32_si128(static_cast<int>(factor)), 0);
  return step8(0, static_cast<std::uint64_t>(_mm_cvtsi128_si64(product)));
}

#else

inline std::uint32_t step1(std::uint32_t crc, std::uint8_t byte) { return __crc32cb(crc, byte); }
inline std::uint32_t step8(std::uint32_t crc, std::uint64_t bytes) { return __crc32cd(crc, bytes); }

constexpr std::uint32_t factor_to_append(std::size_t bytes) { return power_of_x(8 * bytes); }

inline std::uint32_t multiply(std::uint32_t crc, std::uint32_t factor) {
  std::uint32_t product = 0;
  for (int bit = 31; bit >= 0; --bit, factor = times_x(factor)) {
    product ^= factor & (0U - ((crc >> bit) & 1));
  }
  return product;
}

#endif

MCCL_CRC_TARGET inline std::uint64_t word_at(const std::byte* at) {
  std::uint64_t word;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

/// Processes as many groups of three parts of `Part` bytes as `data` holds, and removes them from
/// `data`.
template <std::size_t Part>
MCCL_CRC_TARGET std::uint32_t take_threes(std::uint32_t crc, std::span<const std::byte>& data) {
  constexpr std::uint32_t kAppendOne = factor_to_append(Part);
  constexpr std::uint32_t kAppendTwo = factor_to_append(2 * Part);
  while (data.size() >= 3 * Part) {
    const std::byte* const at = data.data();
    std::uint32_t second = 0;
    std::uint32_t third = 0;
    for (std::size_t i = 0; i < Part; i += 8) {
      crc = step8(crc, word_at(at + i));
      second = step8(second, word_at(at + Part + i));
      third = step8(third, word_at(at + 2 * Part + i));
    }
    crc = multiply(crc, kAppendTwo) ^ multiply(second, kAppendOne) ^ third;
    data = data.subspan(3 * Part);
  }
  return crc;
}

}  // namespace

bool crc32c_in_hardware() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
#else
  return true;
#endif
}

MCCL_CRC_TARGET std::uint32_t crc32c_by_hardware(std::uint32_t crc,
                                                 std::span<const std::byte> data) {
  crc = ~crc;
  crc = take_threes<4096>(crc, data);
  crc = take_threes<256>(crc, data);
  for (; data.size() >= 8; data = data.subspan(8)) crc = step8(crc, word_at(data.data()));
  for (const std::byte b : data) crc = step1(crc, std::to_integer<std::uint8_t>(b));
  return ~crc;
}

#else

bool crc32c_in_hardware() { return false; }

std::uint32_t crc32c_by_hardware(std::uint32_t crc, std::span<const std::byte> data) {
  return crc32c_by_table(crc, data);
}

#endif

}  // namespace mccl::kernels
