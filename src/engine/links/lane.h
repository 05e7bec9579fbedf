// A lane is one link, together with the states of the message that is being sent on it and of the
// message that is arriving.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/rank.h"
#include "engine/calls/request.h"
#include "engine/links/frame.h"
#include "transport/link.h"

namespace mccl::engine {

/// Numbers of bytes, of headers and payloads together, that passed through one or more links.
struct LinkBytes {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
};

/// Sends and receives framed messages on one link, one at a time in each direction. Used under the
/// engine's progress lock. Throws LinkClosed if the link has ended, and CorruptionError for invalid
/// data.
class Lane {
 public:
  /// `peer` is the group rank of the member that the link leads to. `bytes` counts the bytes that
  /// the lane transfers, and must outlive the lane.
  Lane(std::unique_ptr<transport::Link> link, GroupRank peer, std::size_t payload_limit, bool crc,
       LinkBytes& bytes)
      : link_(std::move(link)),
        peer_(peer),
        payload_limit_(payload_limit),
        crc_(crc),
        bytes_(bytes) {}

  transport::Link& link() { return *link_; }
  /// Returns the link. The lane must not be used afterwards. From now on, the caller may change the
  /// messages that the peer has not pulled yet, because their sends end.
  std::unique_ptr<transport::Link> take_link() {
    link_->release();
    link_->withdraw_memory();
    return std::move(link_);
  }

  GroupRank peer() const { return peer_; }
  /// Returns how long data sent on this link has been unacknowledged while other messages from the
  /// peer still arrived. Called at every heartbeat; `heard` is true if a message from the peer has
  /// arrived recently.
  Clock::duration lost_on_the_way(Clock::time_point now, bool heard);

  bool sending() const { return sending_; }
  /// Starts a message. token() returns `token` until the next message starts. The payload must stay
  /// unchanged until push() returns true.
  void start(Frame frame, std::span<const std::byte> payload, std::uint64_t token);
  /// Writes as many bytes of the message as the link accepts. Returns true once the link has taken
  /// the whole message and no longer reads the payload's memory. Then this memory may be reused,
  /// and the next message may start.
  bool push(Traffic& traffic);
  std::uint64_t token() const { return token_; }

  /// Header of the incoming message; null until the whole header has arrived.
  const Frame* incoming(Traffic& traffic);
  /// Returns the same as incoming(), without reading from the link.
  const Frame* header() const { return incoming_ ? &*incoming_ : nullptr; }
  /// True if the caller has accepted the header of the incoming message. False for each new
  /// message.
  bool accepted() const { return accepted_; }
  void accept() { accepted_ = true; }
  std::size_t payload_received() const { return received_; }

  /// Reads the payload bytes that have arrived into `destination`, which has room for the whole
  /// payload. Returns true when the payload is complete.
  bool read_payload(std::span<std::byte> destination, Traffic& traffic);
  /// The available payload, rounded down to whole elements; may be empty.
  std::span<const std::byte> peek_payload(std::size_t element_bytes, Traffic& traffic);
  /// Consumes n bytes returned by peek_payload(). Returns true when the payload is complete.
  bool consume_payload(std::size_t n, Traffic& traffic);
  /// Ends the incoming message. Throws CorruptionError if its checksum is wrong.
  void finish_incoming();

  /// True if payloads have a checksum.
  bool has_crc() const { return crc_; }

  /// True if the peer can pull messages, that is, copy them from this process's memory. Messages
  /// that must have a checksum are not pulled.
  bool lends_memory() const { return !crc_ && link_->lends_memory(); }
  /// Copies bytes of a message from `address` in the peer's memory. Returns false if the system
  /// refuses.
  bool pull(std::uint64_t address, std::span<std::byte> to, Traffic& traffic);
  /// Counts a message of `bytes` bytes that the peer has pulled.
  void count_pulled(std::size_t bytes, Traffic& traffic) {
    bytes_.sent += bytes;
    traffic.bytes_sent += bytes;
  }

  /// A message in the link's memory. `payload` is empty until the whole payload has arrived.
  struct Arriving {
    Frame frame;
    std::span<const std::byte> payload;
    bool fits;  ///< True if the link can present the whole message as one range of memory.
    bool whole() const { return payload.size() == frame.payload_bytes; }
  };
  /// Returns bytes that have arrived, from the header of the next message on; an empty span until
  /// that header has arrived. Like the functions below, must not be used while header() returns a
  /// message.
  std::span<const std::byte> peek_message_bytes() { return link_->peek(kFrameBytes); }
  /// Returns the next message, whose header must have arrived. Consumes nothing.
  Arriving peek_message();
  /// Consumes a whole message. Throws CorruptionError if its checksum is wrong.
  void consume_message(const Arriving& message);
  /// Consumes a whole message. Does not check its checksum.
  void consume_message(std::size_t payload_bytes) {
    link_->consume(kFrameBytes + payload_bytes);
    bytes_.received += kFrameBytes + payload_bytes;
  }

 private:
  Frame decode_header(std::span<const std::byte> bytes) const;
  void check_payload(const Frame& frame, std::uint32_t crc) const;

  std::unique_ptr<transport::Link> link_;
  const GroupRank peer_;
  const std::size_t payload_limit_;
  const bool crc_;
  LinkBytes& bytes_;

  bool sending_ = false;
  FrameBytes header_{};
  std::size_t sent_ = 0;  // bytes of the header and payload that the link has taken
  std::span<const std::byte> payload_;
  std::uint64_t token_ = 0;

  bool outstanding_ = false;       ///< True if sent bytes may be unacknowledged.
  Clock::time_point delivered_{};  ///< Start of the time that lost_on_the_way() returns.

  std::optional<Frame> incoming_;
  bool accepted_ = false;
  std::size_t received_ = 0;  // payload bytes of the incoming message read so far
  std::uint32_t incoming_crc_ = 0;
};

}  // namespace mccl::engine
