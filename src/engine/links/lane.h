// One link with the message that is on its way out and the one that is coming in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/rank.h"
#include "engine/calls/traffic.h"
#include "engine/links/frame.h"
#include "transport/link.h"

namespace mccl::engine {

/// Used under the engine's progress lock. Throws LinkClosed and CorruptionError.
class Lane {
 public:
  /// `peer` is the rank of the group at the other end.
  Lane(std::unique_ptr<transport::Link> link, GroupRank peer, std::size_t payload_limit, bool crc)
      : link_(std::move(link)), peer_(peer), payload_limit_(payload_limit), crc_(crc) {}

  transport::Link& link() { return *link_; }
  /// Ends the lane's use.
  std::unique_ptr<transport::Link> take_link() { return std::move(link_); }

  /// The rank of the group at the other end.
  GroupRank peer() const { return peer_; }
  /// How long what was sent has been lost on the way, though the peer's process is heard elsewhere.
  /// Asked at every beat, with whether the peer has been `heard` of late.
  Clock::duration lost_on_the_way(Clock::time_point now, bool heard);

  bool sending() const { return sending_; }
  /// Begins a message. `token` names it to the caller; the payload is borrowed until push says
  /// done.
  void start(Frame frame, std::span<const std::byte> payload, std::uint64_t token);
  /// Writes what the link takes. True when it has taken the whole message and reads no more of it:
  /// the payload's memory may be used again, and the next message may start.
  bool push(Traffic& traffic);
  std::uint64_t token() const { return token_; }

  /// The header of the message that is coming in, once it is here.
  const Frame* incoming(Traffic& traffic);
  /// The same without looking for new bytes.
  const Frame* header() const { return incoming_ ? &*incoming_ : nullptr; }
  /// Whether the caller has checked the incoming header; reset by each new one.
  bool accepted() const { return accepted_; }
  void accept() { accepted_ = true; }
  std::size_t payload_received() const { return received_; }

  /// Moves what is here of the payload to its place in `destination` (the whole payload's memory).
  /// True when it is complete.
  bool read_payload(std::span<std::byte> destination, Traffic& traffic);
  /// What is here of the payload, a whole number of elements; empty when less than one.
  std::span<const std::byte> peek_payload(std::size_t element_bytes, Traffic& traffic);
  /// Takes n bytes that peek_payload gave. True when the payload is complete.
  bool consume_payload(std::size_t n, Traffic& traffic);
  /// Ends the incoming message, checking its checksum.
  void finish_incoming();

 private:
  std::unique_ptr<transport::Link> link_;
  const GroupRank peer_;
  const std::size_t payload_limit_;
  const bool crc_;

  bool sending_ = false;
  FrameBytes header_{};
  std::size_t sent_ = 0;  // header and payload
  std::span<const std::byte> payload_;
  std::uint64_t token_ = 0;

  bool outstanding_ = false;       ///< What was sent may not have been acknowledged.
  Clock::time_point delivered_{};  ///< When nothing was lost on the way.

  std::optional<Frame> incoming_;
  bool accepted_ = false;
  std::size_t received_ = 0;  // payload only
  std::uint32_t incoming_crc_ = 0;
};

}  // namespace mccl::engine
