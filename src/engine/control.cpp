#include "engine/control.h"

#include <algorithm>
#include <cstring>

#include "mccl/error.h"

namespace mccl::engine {
namespace {

constexpr std::size_t kReasonLimit = 2048;

/// After it come `reason_bytes` bytes of text.
struct Layout {
  std::uint8_t kind;
  std::uint8_t purpose;
  std::uint8_t rail;
  std::uint8_t failure_kind;
  std::uint8_t collective;
  std::uint8_t dtype;
  std::uint8_t reduce_kind;
  std::uint8_t reserved;
  std::int32_t root;
  std::uint32_t reason_bytes;
  std::uint64_t group;
  std::uint64_t sequence;
  std::uint64_t count;
  std::uint64_t counts_hash;
  std::uint64_t call_bytes;
  std::uint64_t place_offset;
  std::uint64_t place_bytes;
};
static_assert(sizeof(Layout) == 72);

}  // namespace

std::vector<std::byte> encode(const ControlMessage& message) {
  const std::size_t reason_bytes = std::min(message.failure.reason.size(), kReasonLimit);
  Layout layout{};
  layout.kind = static_cast<std::uint8_t>(message.kind);
  layout.purpose = static_cast<std::uint8_t>(message.key.purpose);
  layout.rail = message.key.rail;
  layout.failure_kind = static_cast<std::uint8_t>(message.failure.kind);
  layout.collective = static_cast<std::uint8_t>(message.call.collective);
  layout.dtype = static_cast<std::uint8_t>(message.call.dtype);
  layout.reduce_kind = static_cast<std::uint8_t>(message.call.kind);
  layout.root = message.call.root;
  layout.reason_bytes = static_cast<std::uint32_t>(reason_bytes);
  layout.group = message.key.group;
  layout.sequence = message.call.sequence;
  layout.count = message.call.count;
  layout.counts_hash = message.call.counts_hash;
  layout.call_bytes = message.offer.call_bytes;
  layout.place_offset = message.offer.place.offset;
  layout.place_bytes = message.offer.place.bytes;
  std::vector<std::byte> bytes(sizeof layout + reason_bytes);
  std::memcpy(bytes.data(), &layout, sizeof layout);
  if (reason_bytes > 0) {
    std::memcpy(bytes.data() + sizeof layout, message.failure.reason.data(), reason_bytes);
  }
  return bytes;
}

std::optional<DecodedControl> decode_control(std::span<const std::byte> bytes) {
  Layout layout;
  if (bytes.size() < sizeof layout) return std::nullopt;
  std::memcpy(&layout, bytes.data(), sizeof layout);
  if (layout.kind >= kControlKindCount || layout.purpose > 2 ||
      layout.failure_kind >= kFailureKindCount || layout.reserved != 0 ||
      layout.reason_bytes > kReasonLimit ||
      !valid_types(layout.collective, layout.dtype, layout.reduce_kind)) {
    throw CorruptionError("the bytes that arrived are not a control message");
  }
  if (bytes.size() < sizeof layout + layout.reason_bytes) return std::nullopt;
  DecodedControl decoded;
  ControlMessage& message = decoded.message;
  message.kind = static_cast<ControlKind>(layout.kind);
  message.key.purpose = static_cast<rendezvous::Purpose>(layout.purpose);
  message.key.rail = layout.rail;
  message.key.group = layout.group;
  message.failure.kind = static_cast<FailureKind>(layout.failure_kind);
  message.failure.reason.assign(reinterpret_cast<const char*>(bytes.data()) + sizeof layout,
                                layout.reason_bytes);
  message.call.collective = static_cast<Collective>(layout.collective);
  message.call.dtype = static_cast<DType>(layout.dtype);
  message.call.kind = static_cast<ReduceKind>(layout.reduce_kind);
  message.call.root = layout.root;
  message.call.sequence = layout.sequence;
  message.call.count = layout.count;
  message.call.counts_hash = layout.counts_hash;
  message.offer = {layout.call_bytes, {layout.place_offset, layout.place_bytes}};
  decoded.bytes = sizeof layout + layout.reason_bytes;
  return decoded;
}

void ControlConnection::send(const ControlMessage& message) {
  const std::vector<std::byte> bytes = encode(message);
  unsent_.insert(unsent_.end(), bytes.begin(), bytes.end());
}

bool ControlConnection::flush() {
  try {
    while (!unsent_.empty()) {
      std::byte piece[512];
      const std::size_t n = std::min(unsent_.size(), sizeof piece);
      std::copy_n(unsent_.begin(), n, piece);
      const std::size_t written = link_->write({piece, n});
      unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<std::ptrdiff_t>(written));
      if (written < n) break;
    }
    return true;
  } catch (const transport::LinkClosed&) {
    unsent_.clear();
    return false;
  }
}

std::optional<ControlMessage> ControlConnection::receive() {
  std::span<const std::byte> bytes = link_->peek(sizeof(Layout));
  if (bytes.empty()) return std::nullopt;
  std::optional<DecodedControl> decoded = decode_control(bytes);
  if (!decoded) {
    Layout layout;
    std::memcpy(&layout, bytes.data(), sizeof layout);
    bytes = link_->peek(sizeof layout + layout.reason_bytes);
    if (bytes.empty()) return std::nullopt;
    decoded = decode_control(bytes);
  }
  link_->consume(decoded->bytes);
  return std::move(decoded->message);
}

}  // namespace mccl::engine
