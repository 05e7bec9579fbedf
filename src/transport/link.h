// One ordered, full-duplex path of bytes to one peer. Every transport implements it and passes
// tests/transport/link_conformance.h.
//
// Not thread-safe: the engine calls it under its progress lock. No call blocks. Calls throw
// LinkClosed once the peer has gone or the path broke. Everything that the peer wrote before it
// called depart(), and depart() returned true, is received before that, even where a write of this
// end has failed meanwhile.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "base/clock.h"
#include "mccl/error.h"

namespace mccl::transport {

/// How a peer was lost: the end of its process is known, which the system tells each link too or
/// will, or it fell silent and is given up, where the system might wait for it much longer.
enum class Loss { told, silence };

class LinkClosed : public PeerError {
 public:
  using PeerError::PeerError;
};

class Link {
 public:
  virtual ~Link() = default;

  /// Sends as many bytes of `first` followed by `second` as the path takes now; returns how many.
  /// Given nothing, it only looks whether the path still stands.
  virtual std::size_t write(std::span<const std::byte> first,
                            std::span<const std::byte> second = {}) = 0;

  /// What has arrived in one piece, in memory of the link, if that is at least `at_least` bytes,
  /// which are at most peek_capacity(); else empty. There may be more behind it. Valid until the
  /// next call. Never throws LinkClosed while there are at_least bytes.
  virtual std::span<const std::byte> peek(std::size_t at_least) = 0;
  /// Drops the first n bytes that peek gave.
  virtual void consume(std::size_t n) = 0;
  virtual std::size_t peek_capacity() const = 0;

  /// Moves what has arrived into `destination`, without a copy in between where the transport can;
  /// returns how many bytes, 0 when none are there.
  virtual std::size_t read(std::span<std::byte> destination) = 0;

  /// A descriptor for poll(2): readable when peek or read may give more, writable when write may
  /// take more; -1 when Transport::arm() sees to that. Bytes that are already inside the link make
  /// nothing readable: whoever has not read all that there was reads on before it sleeps.
  virtual int descriptor() const = 0;

  /// When write() is worth trying again, where the system has no memory for what is sent and calls
  /// the descriptor writable all the same; else the end of time.
  virtual Clock::time_point retry_at() const { return Clock::time_point::max(); }

  /// Bytes at the end of what write() has taken that must stay as they are, because the link still
  /// reads them where they lie. 0 for a transport that copies. What write() has taken a part of
  /// stays too until the rest is written, or the link is destroyed.
  virtual std::size_t borrowed() const { return 0; }

  /// Bytes that write has taken and the peer's host has not acknowledged: destroying the link may
  /// lose them. 0 where a transport cannot tell.
  virtual std::size_t unsent() const = 0;

  /// How long the system has sent some of what write() has taken again and again, while the peer's
  /// host acknowledged nothing; nothing while it does not, or where a transport cannot tell. A host
  /// whose process reads nothing acknowledges all the same.
  virtual std::optional<Clock::duration> unacknowledged_for() const { return {}; }

  /// Ends the use of the link: nothing is written to it or read from it any more, and bytes that
  /// arrive are discarded. Called again until it returns true: then the link can be destroyed, and
  /// the peer still receives everything that was written.
  virtual bool depart() noexcept { return unsent() == 0; }

  /// Memory that the link takes of its own, beside what it shares with the peer.
  virtual std::size_t buffer_bytes() const { return 0; }

  /// The peer is lost, as is known from elsewhere: what has arrived is still handed out, and then
  /// the link is closed.
  virtual void lose_peer(Loss loss) = 0;

  /// For messages: "tcp 10.0.0.1:29601 -> 10.0.0.2:41312".
  virtual std::string description() const = 0;
};

}  // namespace mccl::transport
