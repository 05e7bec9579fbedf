#include "kernels/checksum.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string_view>
#include <vector>

namespace mccl::kernels {
namespace {

using Bytes = std::vector<std::byte>;
using Path = std::uint32_t (*)(std::uint32_t, std::span<const std::byte>);

Bytes random_bytes(std::size_t size, unsigned seed) {
  std::mt19937 random(seed);
  Bytes bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

Bytes bytes_of(std::string_view text) {
  Bytes bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

struct NamedPath {
  const char* name;
  Path path;
};

std::vector<NamedPath> paths() {
  std::vector<NamedPath> all = {{"chosen", crc32c}, {"table", crc32c_by_table}};
  if (crc32c_in_hardware()) all.push_back({"hardware", crc32c_by_hardware});
  return all;
}

class Checksum : public ::testing::TestWithParam<NamedPath> {
 protected:
  std::uint32_t crc(std::span<const std::byte> data) const { return GetParam().path(0, data); }
};

TEST_P(Checksum, VectorsOfRfc3720) {
  EXPECT_EQ(crc(Bytes(32, std::byte{0x00})), 0x8A9136AAu);
  EXPECT_EQ(crc(Bytes(32, std::byte{0xFF})), 0x62A8AB43u);
  Bytes rising(32);
  Bytes falling(32);
  for (int i = 0; i < 32; ++i) rising[i] = falling[31 - i] = static_cast<std::byte>(i);
  EXPECT_EQ(crc(rising), 0x46DD794Eu);
  EXPECT_EQ(crc(falling), 0x113FDB5Cu);
  // An iSCSI SCSI Read (10) command.
  Bytes command(48);
  const auto set = [&](std::size_t at, int value) { command[at] = static_cast<std::byte>(value); };
  set(0, 0x01);
  set(1, 0xC0);
  set(16, 0x14);
  set(22, 0x04);
  set(27, 0x14);
  set(31, 0x18);
  set(32, 0x28);
  set(40, 0x02);
  EXPECT_EQ(crc(command), 0xD9963A56u);
}

TEST_P(Checksum, CheckValueAndEmpty) {
  EXPECT_EQ(crc(bytes_of("123456789")), 0xE3069283u);
  EXPECT_EQ(crc({}), 0u);
}

TEST_P(Checksum, ContinuesWhereItStopped) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const Bytes data = random_bytes(random() % 40000, random());
    const std::size_t cut = data.empty() ? 0 : random() % (data.size() + 1);
    const std::span<const std::byte> all = data;
    const std::uint32_t first = GetParam().path(0, all.first(cut));
    EXPECT_EQ(GetParam().path(first, all.subspan(cut)), crc(all)) << data.size() << " at " << cut;
  }
}

TEST_P(Checksum, DetectsEverySingleBit) {
  Bytes data = random_bytes(100, 3);
  const std::uint32_t before = crc(data);
  for (std::size_t bit = 0; bit < data.size() * 8; ++bit) {
    data[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_NE(crc(data), before) << bit;
    data[bit / 8] ^= std::byte{1} << (bit % 8);
  }
}

INSTANTIATE_TEST_SUITE_P(Paths, Checksum, ::testing::ValuesIn(paths()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(ChecksumPaths, TableAndChosenAgreeForEveryLengthAndAlignment) {
  const Bytes data = random_bytes(3 * 4096 * 4, 7);
  const std::span<const std::byte> all = data;
  const auto compare = [&](std::size_t offset, std::size_t size) {
    const auto part = all.subspan(offset, size);
    const auto start = static_cast<std::uint32_t>(offset * 2654435761u);
    EXPECT_EQ(crc32c(start, part), crc32c_by_table(start, part)) << offset << " + " << size;
  };
  for (std::size_t size = 0; size < 1700; ++size) compare(size % 17, size);
  for (std::size_t size = 3 * 4096 - 20; size < 3 * 4096 + 800; size += 7) compare(size % 17, size);
  compare(0, all.size());
  compare(3, all.size() - 5);
}

}  // namespace
}  // namespace mccl::kernels
