#include "engine/links/lane.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "kernels/checksum.h"
#include "mccl/error.h"

namespace mccl::engine {
namespace {

/// Number of payload bytes that must arrive before they are reduced. With fewer bytes, calling the
/// kernel would take longer than its arithmetic. Fewer bytes suffice at the end of a payload, and
/// on a link whose peek_capacity() is smaller.
constexpr std::size_t kReduceGrain = 64 << 10;

}  // namespace

Clock::duration Lane::lost_on_the_way(Clock::time_point now, bool heard) {
  if (!outstanding_) {
    delivered_ = now;
    return {};
  }
  const std::optional<Clock::duration> lost = link_->unacknowledged_for();
  if (!lost && !sending_) outstanding_ = link_->unsent() > 0;
  if (!lost || !heard || delivered_ == Clock::time_point()) delivered_ = now;
  if (lost) delivered_ = std::max(delivered_, now - *lost);
  return now - delivered_;
}

void Lane::start(Frame frame, std::span<const std::byte> payload, std::uint64_t token) {
  frame.payload_bytes = static_cast<std::uint32_t>(payload.size());
  frame.has_crc = crc_;
  if (crc_) frame.crc = kernels::crc32c(0, payload);
  header_ = encode(frame);
  payload_ = payload;
  token_ = token;
  sent_ = 0;
  sending_ = outstanding_ = true;
}

bool Lane::push(Traffic& traffic) {
  const ScopedTimer timer(traffic.network_s, traffic.timed);
  const std::span<const std::byte> header(header_);
  const std::size_t total = kFrameBytes + payload_.size();
  while (sent_ < total) {
    const std::size_t written = sent_ < kFrameBytes
                                    ? link_->write(header.subspan(sent_), payload_)
                                    : link_->write(payload_.subspan(sent_ - kFrameBytes));
    if (written == 0) return false;
    sent_ += written;
    bytes_.sent += written;
    traffic.bytes_sent += written;
  }
  if (link_->borrowed() > 0) {
    link_->write({});  // throws if the link has ended, after which borrowed() might never become 0
    if (link_->borrowed() > 0) return false;
  }
  link_->release();
  sending_ = false;
  return true;
}

const Frame* Lane::incoming(Traffic& traffic) {
  if (incoming_) return &*incoming_;
  const ScopedTimer timer(traffic.network_s, traffic.timed);
  const std::span<const std::byte> bytes = link_->peek(kFrameBytes);
  if (bytes.empty()) return nullptr;
  incoming_ = decode_header(bytes);
  link_->consume(kFrameBytes);
  bytes_.received += kFrameBytes;
  traffic.bytes_received += kFrameBytes;
  accepted_ = false;
  received_ = 0;
  incoming_crc_ = 0;
  return &*incoming_;
}

bool Lane::read_payload(std::span<std::byte> destination, Traffic& traffic) {
  const ScopedTimer timer(traffic.network_s, traffic.timed);
  while (received_ < destination.size()) {
    const std::span<std::byte> rest = destination.subspan(received_);
    const std::size_t n = link_->read(rest);
    if (n == 0) return false;
    if (incoming_->has_crc) incoming_crc_ = kernels::crc32c(incoming_crc_, rest.first(n));
    received_ += n;
    bytes_.received += n;
    traffic.bytes_received += n;
  }
  return true;
}

std::span<const std::byte> Lane::peek_payload(std::size_t element_bytes, Traffic& traffic) {
  const ScopedTimer timer(traffic.network_s, traffic.timed);
  const std::size_t rest = incoming_->payload_bytes - received_;
  const std::size_t wanted = std::min({rest, kReduceGrain, link_->peek_capacity()});
  const std::span<const std::byte> bytes = link_->peek(wanted);
  const std::size_t usable = std::min(bytes.size(), rest);
  return bytes.first(usable - usable % element_bytes);
}

bool Lane::consume_payload(std::size_t n, Traffic& traffic) {
  if (incoming_->has_crc) incoming_crc_ = kernels::crc32c(incoming_crc_, link_->peek(n).first(n));
  link_->consume(n);
  received_ += n;
  bytes_.received += n;
  traffic.bytes_received += n;
  return received_ == incoming_->payload_bytes;
}

bool Lane::pull(std::uint64_t address, std::span<std::byte> to, Traffic& traffic) {
  const ScopedTimer timer(traffic.network_s, traffic.timed);
  if (!link_->read_peer(address, to)) return false;
  bytes_.received += to.size();
  traffic.bytes_received += to.size();
  return true;
}

void Lane::finish_incoming() {
  check_payload(*incoming_, incoming_crc_);
  incoming_.reset();
}

Lane::Arriving Lane::peek_message() {
  std::span<const std::byte> bytes = link_->peek(kFrameBytes);
  Arriving message{.frame = decode_header(bytes), .payload = {}, .fits = true};
  const std::size_t total = kFrameBytes + message.frame.payload_bytes;
  message.fits = total <= link_->peek_capacity();
  if (bytes.size() < total && message.fits) bytes = link_->peek(total);
  if (bytes.size() >= total) message.payload = bytes.first(total).subspan(kFrameBytes);
  return message;
}

void Lane::consume_message(const Arriving& message) {
  if (message.frame.has_crc) check_payload(message.frame, kernels::crc32c(0, message.payload));
  consume_message(message.payload.size());
}

Frame Lane::decode_header(std::span<const std::byte> bytes) const {
  try {
    return decode(bytes.first(kFrameBytes), payload_limit_, crc_);
  } catch (const CorruptionError& error) {
    throw CorruptionError(fmt::format("invalid data from rank {} over {}: {}", peer_,
                                      link_->description(), error.what()));
  }
}

void Lane::check_payload(const Frame& frame, std::uint32_t crc) const {
  if (frame.has_crc && crc != frame.crc) {
    throw CorruptionError(fmt::format(
        "a message of {} bytes from rank {} over {} arrived with checksum {:08x} where {:08x} was "
        "sent: the network damages data",
        frame.payload_bytes, peer_, link_->description(), crc, frame.crc));
  }
}

}  // namespace mccl::engine
