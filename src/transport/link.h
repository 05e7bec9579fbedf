// A Link is one ordered, full-duplex stream of bytes to one peer. Every transport implements Link
// and passes tests/transport/link_conformance.h.
//
// Not thread-safe: the engine calls a Link only with the progress lock held. No call blocks. Calls
// throw LinkClosed once the peer has closed its end or the path is broken. peek() and read() first
// return everything that the peer wrote before its depart() returned true, even if a write by this
// end has failed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tuple>

#include "base/clock.h"
#include "mccl/error.h"

namespace mccl::transport {

/// How the engine learned that a peer is lost. `reported`: a report arrived that the peer's process
/// has ended, so the peer's operating system closes the links immediately or soon. `silence`: no
/// sign of life arrived from the peer within the time limit; the peer's links may stay open for
/// much longer. `left`: the peer's process lives, but has destroyed the link's group. It closes the
/// link once this rank has received everything, so until then a broken connection is replaced.
enum class Loss { reported, silence, left };

class LinkClosed : public PeerError {
 public:
  /// `by_peer` is the value that by_peer() returns.
  explicit LinkClosed(const std::string& message, bool by_peer = true)
      : PeerError(message), by_peer_(by_peer) {}
  /// True if the peer's process or operating system has closed the link. False if the link broke
  /// for another reason, such as an unreachable host; the peer may still consider it open.
  bool by_peer() const { return by_peer_; }

 private:
  bool by_peer_;
};

class Link {
 public:
  virtual ~Link() = default;

  /// Sends as many bytes of `first` followed by `second` as the path accepts now. Returns the
  /// number of bytes accepted. With no bytes to send, only checks that the path is still open.
  virtual std::size_t write(std::span<const std::byte> first,
                            std::span<const std::byte> second = {}) = 0;

  /// False if write() never changes the result of Transport::next_deadline().
  virtual bool sets_deadlines() const { return true; }

  /// Must be called before the bytes that were passed to write() are changed. A link that can
  /// repair its connection then copies those that it may have to send again.
  virtual void release() noexcept {}

  /// Returns at least `at_least` of the bytes that have arrived, as a contiguous span in the link's
  /// memory. Returns an empty span if fewer have arrived. `at_least` is at most peek_capacity().
  /// More bytes may have arrived than the span contains. The span is valid until the next call on
  /// this link. Never throws LinkClosed while `at_least` bytes are available.
  virtual std::span<const std::byte> peek(std::size_t at_least) = 0;
  /// Drops the first `n` of the bytes that peek() returned.
  virtual void consume(std::size_t n) = 0;
  virtual std::size_t peek_capacity() const = 0;

  /// Moves bytes that have arrived into `destination`, without an intermediate copy where the
  /// transport allows it. Returns how many bytes were moved, 0 if none have arrived.
  virtual std::size_t read(std::span<std::byte> destination) = 0;

  /// Descriptor for poll(2): readable when peek() or read() may return more, writable when write()
  /// may accept more. -1 for a link without a descriptor, for which Transport::arm() provides the
  /// wake-up. Bytes already buffered in the link do not make the descriptor readable, so a caller
  /// must read until nothing is left before it sleeps.
  virtual int descriptor() const = 0;

  /// Time at which to retry write() while the system has no memory for sending; poll(2) reports the
  /// descriptor as writable even during such a shortage. Clock::time_point::max() if there is no
  /// shortage.
  virtual Clock::time_point retry_at() const { return Clock::time_point::max(); }

  /// Number of the most recently written bytes that must stay unchanged, because the link still
  /// reads them in place. 0 for a transport that copies. If write() accepted only part of a buffer,
  /// the rest must also stay unchanged until it is written or the link is destroyed.
  virtual std::size_t borrowed() const { return 0; }

  /// True if the peer can copy data directly from the memory of this process, by read_peer().
  virtual bool lends_memory() const { return false; }
  /// Copies the bytes at `address` of the peer's process to `to`, without the link's own memory.
  /// The peer must have passed the address for this purpose. Returns false if the system refuses;
  /// `to` is then undefined. Throws LinkClosed if the peer closed its end or called
  /// withdraw_memory() before the copy was complete, because the peer's program may then have
  /// changed these bytes.
  virtual bool read_peer([[maybe_unused]] std::uint64_t address,
                         [[maybe_unused]] std::span<std::byte> to) {
    return false;
  }
  /// From now on, read_peer() of the peer throws. The caller must not write afterwards.
  virtual void withdraw_memory() noexcept {}

  /// Bytes that write() has accepted and the peer's host has not acknowledged: destroying the link
  /// may lose them. 0 if the transport cannot know.
  virtual std::size_t unsent() const = 0;

  /// How long the system has been retransmitting without any acknowledgement from the peer's host.
  /// Empty if the system is not retransmitting, or if the transport cannot know. A host
  /// acknowledges bytes even if its process does not read them.
  virtual std::optional<Clock::duration> unacknowledged_for() const { return {}; }

  /// True while the connection of the link is being replaced; write() then accepts no bytes.
  virtual bool is_broken() const { return false; }

  /// Called if the network may have dropped the connection of the link without an error. The link
  /// then tries to replace the connection, if it can.
  virtual void suspect() noexcept {}

  /// Ends the use of the link: the caller must not write or read afterwards, and bytes that arrive
  /// are discarded. Must be called again until it returns true. The link can then be destroyed, and
  /// the peer still receives everything that was written.
  virtual bool depart() noexcept { return unsent() == 0; }

  /// Size in bytes of the buffers that this end of the link allocates. Memory shared with the peer
  /// is not counted.
  virtual std::size_t buffer_bytes() const { return 0; }

  /// Called when the engine has learned that the peer is lost, from a source other than this link.
  /// Bytes that have arrived are still returned; after these bytes, calls throw LinkClosed.
  virtual void lose_peer(Loss loss) = 0;

  /// Names the link in messages: "tcp 10.0.0.1:29601 -> 10.0.0.2:41312".
  virtual std::string description() const = 0;
};

enum class Purpose : std::uint8_t {
  control,
  collective,
  point_to_point,
  store,
  /// The connection along a cable (the "trunk"), over which the two cabled ranks exchange news
  /// about all cables (rendezvous/cabling/).
  cable,
  /// A connection between two ranks that no cable joins; other ranks forward its bytes.
  /// LinkKey::group is the target rank. LinkKey::rail selects whether the links or the store of the
  /// target rank accept the connection (Destination in rendezvous/cabling/wiring.h).
  relay,
  /// A new connection for a link whose connection broke (rendezvous/meeting/repairs.h).
  /// LinkKey::group is the number that identifies the link.
  repair,
};
inline constexpr int kPurposeCount = 7;

/// Identifies one of the connections between two ranks. `group` is the id of the connection's
/// group, the target rank for Purpose::relay, the link's number for Purpose::repair, or 0 for
/// control, store and cable. `rail` numbers the parallel connections for one purpose, from 0.
struct LinkKey {
  std::uint64_t group = 0;
  Purpose purpose = Purpose::control;
  std::uint8_t rail = 0;
  friend bool operator==(const LinkKey&, const LinkKey&) = default;
  friend bool operator<(const LinkKey& a, const LinkKey& b) {
    return std::tie(a.group, a.purpose, a.rail) < std::tie(b.group, b.purpose, b.rail);
  }
};

}  // namespace mccl::transport
