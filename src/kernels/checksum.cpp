#include "kernels/checksum.h"

#include <array>

namespace mccl::kernels {
namespace {

// kTables[k][b] is the contribution of byte b to the CRC if k more bytes follow it in its group of
// eight.
using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? kCrc32cPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (std::size_t k = 1; k < tables.size(); ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xFF];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

std::uint32_t crc32c_by_table(std::uint32_t crc, std::span<const std::byte> data) {
  crc = ~crc;
  for (; data.size() >= 8; data = data.subspan(8)) {
    std::uint32_t next = 0;
    for (std::size_t i = 0; i < 8; ++i) {
      const std::uint32_t state = i < 4 ? (crc >> (8 * i)) & 0xFF : 0;
      next ^= kTables[7 - i][std::to_integer<std::uint32_t>(data[i]) ^ state];
    }
    crc = next;
  }
  for (const std::byte b : data) {
    crc = (crc >> 8) ^ kTables[0][(crc ^ std::to_integer<std::uint32_t>(b)) & 0xFF];
  }
  return ~crc;
}

std::uint32_t crc32c(std::uint32_t crc, std::span<const std::byte> data) {
  static const bool in_hardware = crc32c_in_hardware();
  return in_hardware ? crc32c_by_hardware(crc, data) : crc32c_by_table(crc, data);
}

}  // namespace mccl::kernels
