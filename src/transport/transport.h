// Interface of transports, which make links between processes: tcp, shared memory, rdma. A process
// has one Transport of each kind that its job uses. The engine uses them only through this
// interface.
//
// Both ends take part in making a link. At the higher rank of the pair, the engine calls dial().
// The engine sends the resulting blob over the pair's control connection and passes it to hear() at
// the other end. It passes the answer to hear() at the dialing end, and so on until both ends have
// their link. A transport that makes its own connections exchanges no blobs, and its progress()
// reports the links. If one end cannot make the link, the transport at that end throws or reports
// an event. Both ends then try the next transport that reaches the peer.
//
// Not thread-safe: the engine calls a Transport only with the progress lock held. No call blocks.
// tests/support/loopback_transport.h is the smallest implementation.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/rank.h"
#include "transport/link.h"

namespace mccl::transport {

/// Message from one end of a link to the other while the link is being made. Only the transport
/// interprets it. At most kMostBlobBytes long.
using Blob = std::vector<std::byte>;
inline constexpr std::size_t kMostBlobBytes = 4096;

/// Maximum length of a transport's name.
inline constexpr std::size_t kMostNameBytes = 8;

/// Result of one step of making a link at this end. An end may return its link before the other end
/// only if the other end is then certain to make its link as well.
struct Making {
  std::optional<Blob> blob;    ///< Blob for hear() at the other end.
  std::unique_ptr<Link> link;  ///< Set when this end of the link is complete and may be written to.
};

/// Reports a link that progress() completed, a link that could not be made, or an established link
/// that broke while it was not in use.
struct LinkEvent {
  WorldRank peer;
  LinkKey key;
  std::unique_ptr<Link> link;  ///< Null if the link failed; `reason` then says why.
  std::string reason;
  /// True if the link had been established before it broke.
  bool stood = false;
};

/// Number of bytes that one end of a link has received since the link was made. Ends of relayed
/// links send receipts to each other, over the pair's control connection.
struct Receipt {
  WorldRank peer;  ///< The other end.
  LinkKey key;
  std::uint64_t bytes = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;

  /// Short name, such as "tcp". Used in messages, and by the other end to identify the transport.
  virtual std::string_view name() const = 0;

  /// True if this rank and the peer can have links of this kind. Determined during the rendezvous;
  /// both ends return the same value.
  virtual bool reaches(WorldRank peer) const = 0;
  /// Human-readable description of the path: "shared memory", "tcp, 2 links, en0 10 Gbit/s MTU
  /// 1500".
  virtual std::string describe(WorldRank peer) const = 0;
  /// Number of parallel links between this rank and the peer for each Purpose; the same at both
  /// ends.
  virtual int rails(WorldRank) const { return 1; }

  /// Descriptions of the paths to the peer that look equally good, so that only a measurement can
  /// choose one. Called at the dialing end. Returns one element if there is no choice.
  virtual std::vector<std::string> equal_ways(WorldRank) const { return {""}; }
  /// Selects the path for later dials to the peer, by its index in equal_ways().
  virtual void take_way(WorldRank, std::size_t) {}

  /// Begins to make a link. Called at the higher rank of the pair. Throws Error if this end cannot
  /// make the link. A LinkEvent reports a later failure, at the deadline at the latest.
  virtual Making dial(WorldRank peer, const LinkKey& key, Clock::time_point deadline) = 0;
  /// Continues to make a link, with a blob from the other end. Throws CorruptionError for a blob
  /// that no correct peer sends. Throws another Error if this end cannot make the link.
  virtual Making hear(WorldRank peer, const LinkKey& key, std::span<const std::byte> blob) = 0;
  /// Called instead of hear() if this end refuses the link that the dialing end has begun.
  virtual void refuse(WorldRank, const LinkKey&, std::span<const std::byte>) {}
  /// Called repeatedly while nothing arrives from the peer. The transport makes new connections for
  /// the links to the peer, if it can.
  virtual void suspect(WorldRank) {}
  /// Returns the receipts that are due: the engine sends each to its peer.
  virtual std::vector<Receipt> take_receipts() { return {}; }
  /// Called with a receipt that the peer has sent. Ignores a receipt for a link that has ended.
  /// Throws CorruptionError for a receipt that no correct peer sends.
  virtual void hear(const Receipt&) {}
  /// Abandons a link that is being made, whichever end dialed. No event follows.
  virtual void cancel(WorldRank peer, const LinkKey& key) = 0;

  /// Does all work that is possible without blocking, and appends an event for each link that was
  /// completed, failed or broke.
  virtual void progress(std::vector<LinkEvent>&) {}
  /// A peer that can no longer be reached, as detected by the transport itself and not by one of
  /// its links.
  struct LostPeer {
    WorldRank peer;
    std::string reason;
  };
  /// Returns the peers lost since the last call.
  virtual std::vector<LostPeer> take_lost() { return {}; }
  /// The reason why this rank has been unable to accept connections from peers for a while. Empty
  /// if it can accept them.
  virtual std::string accepting_trouble() const { return {}; }
  /// Appends the descriptors to poll for events that progress() handles. The descriptors of the
  /// links are not included.
  virtual void watch(std::vector<pollfd>&) const {}
  /// Latest time at which progress() must be called again.
  virtual Clock::time_point next_deadline() const { return Clock::time_point::max(); }

  /// Called before the engine sleeps, so that activity on links without a descriptor ends the
  /// sleep. Returns true if links without a descriptor may exist; the caller must then check its
  /// links again before it sleeps, because bytes may have arrived before the call.
  virtual bool arm() { return false; }
  /// Reverses arm() after the sleep. Also called without a preceding arm(), so it must be cheap.
  virtual void disarm() {}

  /// Called in the child of a fork: closes the child's copies of descriptors and sends nothing to
  /// peers.
  virtual void abandon() noexcept {}
};

}  // namespace mccl::transport
