// A way to make links between processes: tcp, shared memory, rdma. A process has one Transport of
// each kind that its job uses. The engine knows transports only by this interface.
//
// Both ends take part in making a link. The higher rank of the pair dials. The blob that its
// transport produces is delivered to hear() at the other end over the pair's control connection.
// The answer is delivered to hear() at the dialing end, and so on until both ends have their link.
// A transport that connects by itself exchanges no blobs; its links are returned by progress(). If
// either end cannot have the link, it throws or reports an event, and both ends try the next
// transport that reaches the peer.
//
// Not thread-safe: the engine calls it with the progress lock held. No call blocks.
// tests/support/loopback_transport.h is the smallest implementation.
#pragma once

#include <poll.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/rank.h"
#include "transport/link.h"
#include "transport/link_key.h"

namespace mccl::transport {

/// Message from one end of a link to the other while the link is being made. Only the transport
/// interprets it. At most kMostBlobBytes.
using Blob = std::vector<std::byte>;
inline constexpr std::size_t kMostBlobBytes = 4096;

/// Maximum length of a transport's name.
inline constexpr std::size_t kMostNameBytes = 8;

/// Result of one step of making a link at this end. An end may return its link before the other end
/// only if nothing can fail at the other end any more.
struct Making {
  std::optional<Blob> tell;    ///< Blob for hear() at the other end.
  std::unique_ptr<Link> link;  ///< Set when this end of the link is complete and may be written to.
};

/// A link that was completed by progress() or failed, or an established link that broke while it
/// was not in use.
struct LinkEvent {
  WorldRank peer;
  LinkKey key;
  std::unique_ptr<Link> link;  ///< Null if the link failed; `reason` then says why.
  std::string reason;
  bool stood = false;
};

class Transport {
 public:
  virtual ~Transport() = default;

  /// Name in messages, by which the other end also identifies the transport: "tcp".
  virtual std::string_view name() const = 0;

  /// True if the two ranks can have links of this kind. Determined while the ranks met; both ends
  /// return the same value.
  virtual bool reaches(WorldRank peer) const = 0;
  /// Human-readable description of the path: "shared memory", "tcp, 2 links, en0 10 Gbit/s MTU
  /// 1500".
  virtual std::string describe(WorldRank peer) const = 0;
  /// Number of parallel links that a pair has for each purpose; the same at both ends.
  virtual int rails(WorldRank) const { return 1; }

  /// Names, for messages, of the ways to the peer that only a measurement can rank, as seen by the
  /// dialing end. Has one element if there is no such choice.
  virtual std::vector<std::string> equal_ways(WorldRank) const { return {""}; }
  /// Selects by index the one of equal_ways() that later dials to the peer use.
  virtual void take_way(WorldRank, std::size_t) {}

  /// Begins a link, at the higher rank of the pair. Throws Error if this end cannot have it. If
  /// that becomes known only later, a LinkEvent reports it at the deadline or before.
  virtual Making dial(WorldRank peer, const LinkKey& key, Clock::time_point deadline) = 0;
  /// Continues with a blob from the other end. Throws CorruptionError for a blob that no correct
  /// peer sends, and another Error if this end cannot have the link.
  virtual Making hear(WorldRank peer, const LinkKey& key, std::span<const std::byte> told) = 0;
  /// Handles the dialing end's blob for a link that this end refuses.
  virtual void refuse(WorldRank, const LinkKey&, std::span<const std::byte>) {}
  /// Abandons a link that this end has begun, as dialer or not. No event follows.
  virtual void cancel(WorldRank peer, const LinkKey& key) = 0;

  /// Does all work that is possible without blocking, and appends an event for each link that was
  /// completed, failed or broke.
  virtual void progress(std::vector<LinkEvent>&) {}
  /// A peer that can no longer be reached, and the reason, as found out by the transport itself
  /// rather than by one of its links.
  struct LostPeer {
    WorldRank peer;
    std::string reason;
  };
  /// Returns the peers lost since the last call.
  virtual std::vector<LostPeer> take_lost() { return {}; }
  /// Explains why peers that dial this rank get no link, once they have waited for a while. Empty
  /// if they do not have to wait.
  virtual std::string accepting_trouble() const { return {}; }
  /// Appends the descriptors on which progress() waits. The links have descriptors of their own.
  virtual void watch(std::vector<pollfd>&) const {}
  /// Latest time at which progress() must be called again.
  virtual Clock::time_point next_deadline() const { return Clock::time_point::max(); }

  /// Called before a sleep. Afterwards, activity on links without a descriptor ends the sleep.
  /// Returns true if such links may exist; the caller must then check its links once more before it
  /// sleeps.
  virtual bool arm() { return false; }
  /// Called when the sleep has ended. It is called often, so it must be cheap if arm() had no
  /// effect.
  virtual void disarm() {}

  /// Called in the child of a fork: closes the child's copies of descriptors and sends nothing to
  /// peers.
  virtual void abandon() noexcept {}
};

}  // namespace mccl::transport
