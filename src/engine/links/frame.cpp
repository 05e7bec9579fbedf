#include "engine/links/frame.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "mccl/error.h"

namespace mccl::engine {
namespace {

constexpr std::uint64_t kMagic = 0x4d43;  // the bytes "CM", little-endian
constexpr std::uint64_t kHasCrc = 1;

/// The header as words, which are composed in registers for the same reason as CallWords:
/// 0: magic (16 bits), kind (8), flags (8), tag (32); 1 to 4: CallWords; 5: message (32),
/// payload_bytes (32); 6: crc (32), checksum of the header (32).
using FrameWords = std::array<std::uint64_t, 7>;
static_assert(sizeof(FrameWords) == kFrameBytes);

std::uint64_t at(auto value, int bit) { return static_cast<std::uint64_t>(value) << bit; }
std::uint64_t bits(std::uint64_t word, int from, int count) {
  return word >> from & ((std::uint64_t{1} << count) - 1);
}

std::uint64_t checksum_of(const FrameWords& words) {
  constexpr FrameWords kFactors = {
      0xff51afd7ed558ccdULL, 0x9e3779b97f4a7c15ULL, 0xc2b2ae3d27d4eb4fULL, 0x27d4eb2f165667c5ULL,
      0x165667b19e3779f9ULL, 0xc4ceb9fe1a85ec53ULL, 0x94d049bb133111ebULL};
  std::uint64_t sum = bits(words[6], 0, 32) * kFactors[6];
  for (std::size_t i = 0; i < 6; ++i) sum += (words[i] ^ words[i] >> 32) * kFactors[i];
  return sum >> 32;
}

}  // namespace

std::uint32_t checksum_of(const FrameBytes& bytes) {
  return static_cast<std::uint32_t>(checksum_of(std::bit_cast<FrameWords>(bytes)));
}

FrameBytes encode(const Frame& frame) {
  const CallWords call = words_of(frame.call);
  FrameWords words = {
      kMagic | at(frame.kind, 16) | at(frame.has_crc ? kHasCrc : 0, 24) | at(frame.call.tag, 32),
      call[0],
      call[1],
      call[2],
      call[3],
      at(frame.message, 0) | at(frame.payload_bytes, 32),
      at(frame.crc, 0)};
  words.back() |= at(checksum_of(words), 32);
  return std::bit_cast<FrameBytes>(words);
}

Frame decode(std::span<const std::byte> bytes, std::size_t payload_limit, bool crc) {
  FrameWords words;
  if (bytes.size() < sizeof words) throw CorruptionError("a frame header is truncated");
  std::memcpy(words.data(), bytes.data(), sizeof words);
  if (const std::uint64_t found = checksum_of(words); found != bits(words[6], 32, 32)) {
    throw CorruptionError(fmt::format(
        "the bytes that arrived are not a frame header: their checksum is {:08x} where {:08x} was "
        "sent; the network damages data (set MCCL_TRANSPORT_CRC=1 to check the payloads too)",
        found, bits(words[6], 32, 32)));
  }
  const std::uint64_t kind = bits(words[0], 16, 8);
  const std::uint64_t flags = bits(words[0], 24, 8);
  const std::optional<Call> call =
      decode(std::bit_cast<CallCode>(CallWords{words[1], words[2], words[3], words[4]}));
  if (bits(words[0], 0, 16) != kMagic || kind >= kFrameKindCount || flags > kHasCrc || !call)
    throw CorruptionError("the bytes that arrived are not a frame header");
  if ((flags == kHasCrc) != crc) {
    throw CorruptionError(
        fmt::format("a frame arrived {} a checksum, but MCCL_TRANSPORT_CRC={} was agreed on",
                    crc ? "without" : "with", crc ? 1 : 0));
  }
  Frame frame;
  frame.kind = static_cast<FrameKind>(kind);
  frame.call = *call;
  frame.call.tag = static_cast<std::uint32_t>(bits(words[0], 32, 32));
  frame.message = static_cast<std::uint32_t>(bits(words[5], 0, 32));
  frame.payload_bytes = static_cast<std::uint32_t>(bits(words[5], 32, 32));
  frame.crc = static_cast<std::uint32_t>(bits(words[6], 0, 32));
  frame.has_crc = crc;
  if (frame.payload_bytes > payload_limit) {
    throw CorruptionError(
        fmt::format("a frame announces {} bytes; at most {} (MCCL_CHUNK_BYTES) are valid",
                    frame.payload_bytes, payload_limit));
  }
  return frame;
}

}  // namespace mccl::engine
