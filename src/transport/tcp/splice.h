// Joins two connections into one: bytes received from either are sent to the other, in order and at
// the receiver's pace. A rank that relays between two ranks without a common cable has one Splice
// for each of their connections. A Splice holds at most kHeldBytes per direction; when an end does
// not read, the Splice stops reading from the other end.
#pragma once

#include <poll.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "transport/tcp/socket.h"

namespace mccl::transport::tcp {

/// Two joined connections. Not thread-safe. No call blocks.
class Splice {
 public:
  static constexpr std::size_t kHeldBytes = std::size_t{256} << 10;
  static constexpr Clock::duration kForLastBytes = std::chrono::milliseconds(200);

  /// Takes over two connected, non-blocking sockets. After one end has closed, the other end has
  /// `patience` to receive the bytes that the closed end wrote.
  Splice(Socket one, Socket other, Clock::duration patience = Clock::duration::max());

  /// Moves bytes in both directions as far as possible without blocking. Returns false if both
  /// directions have ended, a socket is broken, or the patience has expired; the caller must then
  /// close both sockets. If a socket is broken, the other end has kForLastBytes to receive the
  /// bytes that arrived before. Closing its connection then resets it, so that the rank there knows
  /// that bytes may be lost. If one end has closed, also returns false
  /// once the other end's host has acknowledged everything that the closed end wrote.
  bool advance(Clock::time_point now = Clock::now());
  /// True if advance() returned false because the patience expired; bytes may be lost.
  bool gave_up() const { return gave_up_; }
  /// True if a connection has broken.
  bool is_broken() const { return breaks(forth_, back_) || breaks(back_, forth_); }
  void watch(std::vector<pollfd>& descriptors) const;
  /// Time at which to call advance() even if poll(2) reports nothing; Clock::time_point::max() if
  /// that is not necessary.
  Clock::time_point retry_at() const;

  const Socket& one() const { return one_; }
  const Socket& other() const { return other_; }

 private:
  /// One direction, from a source socket to a sink socket. The bytes received and not yet sent are
  /// held[begin, end).
  struct Way {
    std::unique_ptr<std::byte[]> held;
    std::size_t begin = 0;
    std::size_t end = 0;
    bool no_more = false;  ///< True if the source has ended its stream.
    bool ended = false;    ///< True if the sink was shut down for writing after the last byte.
    /// True if the sink accepts no more bytes; bytes from the source are then discarded. Bytes that
    /// the sink wrote may still be in flight.
    bool discards = false;
    bool is_source_broken = false;
    bool is_sink_broken = false;
    Shortage shortage;  ///< Shortage of system memory for sending to the sink.

    bool wants() const { return !no_more && (end < kHeldBytes || begin >= kHeldBytes / 2); }
    bool has() const { return begin < end; }
  };

  static void move(const Socket& from, const Socket& to, Way& way, const Way& opposite);
  static void take(const Socket& from, Way& way, bool& more);
  static void give(const Socket& to, Way& way, bool& more);
  /// True if the source of `from_it`, which is the sink of `to_it`, is broken.
  static bool breaks(const Way& from_it, const Way& to_it) {
    return from_it.is_source_broken || to_it.is_sink_broken;
  }
  bool is_over() const;
  /// True if one end has closed its connection. Bytes that the closed end wrote earlier may still
  /// be in flight.
  bool an_end_has_gone() const { return forth_.discards || back_.discards; }
  /// True if an end has closed, and all bytes that it wrote have been passed to the kernel. The
  /// kernel may not have sent them to the other end yet.
  bool awaits_acknowledgement() const {
    return (forth_.ended && back_.discards) || (back_.ended && forth_.discards);
  }

  Socket one_;
  Socket other_;
  Clock::duration patience_;
  /// Time at which advance() first found that an end had closed; empty while both ends are open.
  std::optional<Clock::time_point> gone_since_;
  bool gave_up_ = false;
  Way forth_;  ///< From one_ to other_.
  Way back_;
};

}  // namespace mccl::transport::tcp
