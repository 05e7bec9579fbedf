#include "engine/links/frame.h"

#include <fmt/format.h>

#include <bit>
#include <cstddef>
#include <cstring>

#include "engine/calls/call.h"
#include "kernels/checksum.h"
#include "mccl/error.h"

namespace mccl::engine {
namespace {

constexpr std::uint16_t kMagic = 0x4d43;  // the bytes "CM", little-endian
constexpr std::uint8_t kHasCrc = 1;

struct FrameLayout {
  std::uint16_t magic;
  std::uint8_t kind;
  std::uint8_t flags;
  std::uint32_t tag;
  CallCode call;
  std::uint32_t message;
  std::uint32_t payload_bytes;
  std::uint32_t crc;
  std::uint32_t header_crc;  // checksum of all preceding fields
};
static_assert(sizeof(FrameLayout) == kFrameBytes);

std::uint32_t checksum_of(const FrameLayout& layout) {
  return kernels::crc32c(
      0, std::as_bytes(std::span(&layout, 1)).first(offsetof(FrameLayout, header_crc)));
}

}  // namespace

FrameBytes encode(const Frame& frame) {
  FrameLayout layout{};
  layout.magic = kMagic;
  layout.kind = static_cast<std::uint8_t>(frame.kind);
  layout.flags = frame.has_crc ? kHasCrc : 0;
  layout.tag = frame.call.tag;
  layout.call = encode(frame.call);
  layout.message = frame.message;
  layout.payload_bytes = frame.payload_bytes;
  layout.crc = frame.crc;
  layout.header_crc = checksum_of(layout);
  return std::bit_cast<FrameBytes>(layout);
}

Frame decode(std::span<const std::byte> bytes, std::size_t payload_limit, bool crc) {
  FrameLayout layout;
  if (bytes.size() < sizeof layout) throw CorruptionError("a frame header is truncated");
  std::memcpy(&layout, bytes.data(), sizeof layout);
  if (const std::uint32_t found = checksum_of(layout); found != layout.header_crc) {
    throw CorruptionError(fmt::format(
        "the bytes that arrived are not a frame header: their checksum is {:08x} where {:08x} was "
        "sent; the network damages data (set MCCL_TRANSPORT_CRC=1 to check the payloads too)",
        found, layout.header_crc));
  }
  const std::optional<Call> call = decode(layout.call);
  if (layout.magic != kMagic || layout.kind >= kFrameKindCount || layout.flags > kHasCrc || !call) {
    throw CorruptionError("the bytes that arrived are not a frame header");
  }
  if ((layout.flags == kHasCrc) != crc) {
    throw CorruptionError(
        fmt::format("a frame arrived {} a checksum, but MCCL_TRANSPORT_CRC={} was agreed on",
                    crc ? "without" : "with", crc ? 1 : 0));
  }
  if (layout.payload_bytes > payload_limit) {
    throw CorruptionError(
        fmt::format("a frame announces {} bytes; at most {} (MCCL_CHUNK_BYTES) are valid",
                    layout.payload_bytes, payload_limit));
  }
  Frame frame;
  frame.kind = static_cast<FrameKind>(layout.kind);
  frame.call = *call;
  frame.call.tag = layout.tag;
  frame.message = layout.message;
  frame.payload_bytes = layout.payload_bytes;
  frame.crc = layout.crc;
  frame.has_crc = crc;
  return frame;
}

}  // namespace mccl::engine
