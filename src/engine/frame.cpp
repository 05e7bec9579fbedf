#include "engine/frame.h"

#include <fmt/format.h>

#include <bit>
#include <cstddef>
#include <cstring>

#include "kernels/checksum.h"
#include "mccl/error.h"

namespace mccl::engine {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian");

constexpr std::uint16_t kMagic = 0x4d43;  // "CM" in memory
constexpr std::uint8_t kHasCrc = 1;

struct Layout {
  std::uint16_t magic;
  std::uint8_t kind;
  std::uint8_t flags;
  std::uint8_t collective;
  std::uint8_t dtype;
  std::uint8_t reduce_kind;
  std::uint8_t reserved;
  std::int32_t root;
  std::uint32_t tag;
  std::uint64_t sequence;
  std::uint64_t count;
  std::uint64_t counts_hash;
  std::uint32_t message;
  std::uint32_t payload_bytes;
  std::uint32_t crc;
  std::uint32_t header_crc;  // of all before it
};
static_assert(sizeof(Layout) == kFrameBytes);

std::uint32_t checksum_of(const Layout& layout) {
  return kernels::crc32c(0,
                         std::as_bytes(std::span(&layout, 1)).first(offsetof(Layout, header_crc)));
}

}  // namespace

FrameBytes encode(const Frame& frame) {
  Layout layout{};
  layout.magic = kMagic;
  layout.kind = static_cast<std::uint8_t>(frame.kind);
  layout.flags = frame.has_crc ? kHasCrc : 0;
  layout.collective = static_cast<std::uint8_t>(frame.call.collective);
  layout.dtype = static_cast<std::uint8_t>(frame.call.dtype);
  layout.reduce_kind = static_cast<std::uint8_t>(frame.call.kind);
  layout.root = frame.call.root;
  layout.tag = frame.call.tag;
  layout.sequence = frame.call.sequence;
  layout.count = frame.call.count;
  layout.counts_hash = frame.call.counts_hash;
  layout.message = frame.message;
  layout.payload_bytes = frame.payload_bytes;
  layout.crc = frame.crc;
  layout.header_crc = checksum_of(layout);
  return std::bit_cast<FrameBytes>(layout);
}

Frame decode(std::span<const std::byte> bytes, std::size_t payload_limit, bool crc) {
  Layout layout;
  if (bytes.size() < sizeof layout) throw CorruptionError("a frame header is cut short");
  std::memcpy(&layout, bytes.data(), sizeof layout);
  if (const std::uint32_t found = checksum_of(layout); found != layout.header_crc) {
    throw CorruptionError(
        fmt::format("the bytes that arrived are not a frame header: their checksum is {:08x} where "
                    "{:08x} was sent; the network damages data (set MCCL_TRANSPORT_CRC=1 to check "
                    "what follows the headers too)",
                    found, layout.header_crc));
  }
  if (layout.magic != kMagic || layout.kind >= kFrameKindCount || layout.flags > kHasCrc ||
      layout.reserved != 0 || !valid_types(layout.collective, layout.dtype, layout.reduce_kind)) {
    throw CorruptionError("the bytes that arrived are not a frame header");
  }
  if ((layout.flags == kHasCrc) != crc) {
    throw CorruptionError(
        fmt::format("a frame comes {} a checksum, where MCCL_TRANSPORT_CRC={} was agreed on",
                    crc ? "without" : "with", crc ? 1 : 0));
  }
  if (layout.payload_bytes > payload_limit) {
    throw CorruptionError(
        fmt::format("a frame announces {} bytes; at most {} (MCCL_CHUNK_BYTES) can be right",
                    layout.payload_bytes, payload_limit));
  }
  Frame frame;
  frame.kind = static_cast<FrameKind>(layout.kind);
  frame.call.collective = static_cast<Collective>(layout.collective);
  frame.call.dtype = static_cast<DType>(layout.dtype);
  frame.call.kind = static_cast<ReduceKind>(layout.reduce_kind);
  frame.call.root = layout.root;
  frame.call.tag = layout.tag;
  frame.call.sequence = layout.sequence;
  frame.call.count = layout.count;
  frame.call.counts_hash = layout.counts_hash;
  frame.message = layout.message;
  frame.payload_bytes = layout.payload_bytes;
  frame.crc = layout.crc;
  frame.has_crc = crc;
  return frame;
}

}  // namespace mccl::engine
