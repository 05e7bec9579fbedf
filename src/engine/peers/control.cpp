#include "engine/peers/control.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "engine/calls/call.h"
#include "mccl/error.h"

namespace mccl::engine {
namespace {

constexpr std::size_t kReasonLimit = 2048;
/// Number of bytes that a connection reserves for unsent messages. It is larger than the longest
/// message.
constexpr std::size_t kUsualUnsentBytes = std::size_t{16} << 10;

/// Header of an encoded message. `blob_bytes` bytes follow, and then `reason_bytes` bytes of text.
struct ControlLayout {
  std::uint8_t kind;
  std::uint8_t purpose;
  std::uint8_t rail;
  std::uint8_t failure_kind;
  std::uint16_t blob_bytes;
  std::uint16_t reason_bytes;
  std::uint64_t group;
  std::array<char, transport::kMostNameBytes> transport;  // padded with zeros
  std::int32_t seen_by;  // rank that detected the failure; negative if the reason names it
  std::uint32_t unused;  // always 0
  CallCode call;

  std::size_t total() const { return sizeof *this + blob_bytes + reason_bytes; }
};
static_assert(sizeof(ControlLayout) == 64);

std::string name_in(const ControlLayout& layout) {
  const auto end = std::find(layout.transport.begin(), layout.transport.end(), '\0');
  return {layout.transport.begin(), end};
}

/// True if the bytes after the transport's name are zeros.
bool is_padded(const ControlLayout& layout) {
  const auto end = std::find(layout.transport.begin(), layout.transport.end(), '\0');
  return std::all_of(end, layout.transport.end(), [](char c) { return c == '\0'; });
}

/// True if all fields of the header are in their ranges. Does not check the bytes after the header.
bool is_possible(const ControlLayout& layout) {
  return layout.kind < kControlKindCount &&
         layout.purpose <= static_cast<int>(transport::Purpose::point_to_point) &&
         layout.failure_kind < kFailureKindCount && layout.unused == 0 &&
         layout.blob_bytes <= transport::kMostBlobBytes && layout.reason_bytes <= kReasonLimit &&
         is_padded(layout) && decode(layout.call).has_value();
}

std::span<const std::byte> bytes_of(const std::string& text, std::size_t limit) {
  return std::as_bytes(std::span(text)).first(std::min(text.size(), limit));
}

/// Appends the encoded message to `bytes`. If this throws, `bytes` is unchanged.
void append(std::vector<std::byte>& bytes, const ControlMessage& message) {
  const std::span<const std::byte> reason = bytes_of(message.failure.reason, kReasonLimit);
  const std::span<const std::byte> name = bytes_of(message.transport, transport::kMostNameBytes);
  if (message.blob.size() > transport::kMostBlobBytes) {
    throw InvalidArgument(
        fmt::format("transport {} wants to send {} bytes of set-up data; at most {} are allowed",
                    message.transport, message.blob.size(), transport::kMostBlobBytes));
  }
  ControlLayout layout{};
  layout.kind = static_cast<std::uint8_t>(message.kind);
  layout.purpose = static_cast<std::uint8_t>(message.key.purpose);
  layout.rail = message.key.rail;
  layout.failure_kind = static_cast<std::uint8_t>(message.failure.kind);
  layout.blob_bytes = static_cast<std::uint16_t>(message.blob.size());
  layout.reason_bytes = static_cast<std::uint16_t>(reason.size());
  layout.group = message.key.group;
  std::copy(message.transport.begin(),
            message.transport.begin() + static_cast<std::ptrdiff_t>(name.size()),
            layout.transport.begin());
  layout.seen_by = message.failure.seen_by.number();
  layout.call = encode(message.call);
  const std::span<const std::byte> parts[] = {std::as_bytes(std::span(&layout, 1)), message.blob,
                                              reason};
  std::size_t at = bytes.size();
  bytes.resize(at + layout.total());
  for (const std::span<const std::byte> part : parts) {
    if (!part.empty()) std::memcpy(bytes.data() + at, part.data(), part.size());
    at += part.size();
  }
}

}  // namespace

std::vector<std::byte> encode(const ControlMessage& message) {
  std::vector<std::byte> bytes;
  append(bytes, message);
  return bytes;
}

std::optional<DecodedControl> decode_control(std::span<const std::byte> bytes) {
  ControlLayout layout;
  if (bytes.size() < sizeof layout) return std::nullopt;
  std::memcpy(&layout, bytes.data(), sizeof layout);
  if (!is_possible(layout)) {
    throw CorruptionError("the bytes that arrived are not a control message");
  }
  if (bytes.size() < layout.total()) return std::nullopt;
  const auto blob = bytes.subspan(sizeof layout, layout.blob_bytes);
  const auto reason = bytes.subspan(sizeof layout + layout.blob_bytes, layout.reason_bytes);
  DecodedControl decoded;
  ControlMessage& message = decoded.message;
  message.kind = static_cast<ControlKind>(layout.kind);
  message.key = {layout.group, static_cast<transport::Purpose>(layout.purpose), layout.rail};
  message.transport = name_in(layout);
  message.call = *decode(layout.call);
  message.failure.kind = static_cast<FailureKind>(layout.failure_kind);
  message.failure.seen_by = GroupRank(layout.seen_by);
  message.failure.reason.assign(reinterpret_cast<const char*>(reason.data()), reason.size());
  message.blob.assign(blob.begin(), blob.end());
  decoded.bytes = layout.total();
  return decoded;
}

ControlConnection::ControlConnection(std::unique_ptr<transport::Link> link)
    : link_(std::move(link)) {
  unsent_.reserve(kUsualUnsentBytes);
}

std::string_view ControlConnection::send(const ControlMessage& message) noexcept {
  if (unsent_.size() - sent_ > kMostUnsentBytes) {
    return "it has not read its messages, of which more than 32 MiB are queued; see what it does";
  }
  try {
    append(unsent_, message);
  } catch (const std::exception&) {
    return "this rank has no memory left for a message to that rank";
  }
  flush();
  return {};
}

void ControlConnection::flush() noexcept {
  try {
    while (has_unsent()) {
      const std::size_t written = link_->write(std::span(unsent_).subspan(sent_));
      link_->release();
      if (written == 0) break;
      sent_ += written;
    }
  } catch (const std::exception&) {
    sent_ = unsent_.size();  // drops the bytes; receive() reports that the peer is gone
  }
  // The written bytes are erased only if they are at least half of all bytes, so that an erasure
  // never moves more bytes than it removes.
  if (sent_ < unsent_.size() - sent_) return;
  unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<std::ptrdiff_t>(sent_));
  sent_ = 0;
  if (unsent_.empty() && unsent_.capacity() > kUsualUnsentBytes) shrink();
}

/// Frees the memory that was allocated while the peer did not read.
void ControlConnection::shrink() noexcept {
  try {
    std::vector<std::byte> usual;
    usual.reserve(kUsualUnsentBytes);
    unsent_.swap(usual);
  } catch (const std::bad_alloc&) {
    return;
  }
}

std::optional<ControlMessage> ControlConnection::receive() {
  std::span<const std::byte> bytes = link_->peek(sizeof(ControlLayout));
  if (bytes.empty()) return std::nullopt;
  std::optional<DecodedControl> decoded = decode_control(bytes);
  if (!decoded) {
    ControlLayout layout;
    std::memcpy(&layout, bytes.data(), sizeof layout);
    bytes = link_->peek(layout.total());
    if (bytes.empty()) return std::nullopt;
    decoded = decode_control(bytes);
  }
  received_bytes_ = decoded->bytes;
  return std::move(decoded->message);
}

}  // namespace mccl::engine
