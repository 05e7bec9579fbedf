// A way to make links between processes: tcp, shared memory, and what will come. A process has one
// Transport of each kind that its job uses; the engine knows them by this face alone.
//
// A link is made by two. The higher rank of a pair dials. What its transport wants told reaches the
// other end's hear(), by the pair's control connection, whose answer reaches hear() of the end that
// dialled, and so on until both ends have their link. A transport that connects in its own way
// tells nothing, and its links come from progress(). Whichever end cannot have the link throws, or
// reports it, and the two go on to the next transport that reaches the peer.
//
// Not thread-safe: the engine calls it under its progress lock. No call blocks.
// tests/support/loopback_transport.h is the smallest one.
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

/// What the two ends of a link to be tell each other; nobody else reads it. At most kMostBlobBytes.
using Blob = std::vector<std::byte>;
inline constexpr std::size_t kMostBlobBytes = 4096;

/// A name is at most so long.
inline constexpr std::size_t kMostNameBytes = 8;

/// What has come of one step of making a link at this end. An end that stands before the other does
/// must be such that nothing can go wrong at the other any more.
struct Making {
  std::optional<Blob> tell;    ///< For the other end's hear().
  std::unique_ptr<Link> link;  ///< This end stands, and may be written to.
};

/// A link that came about, or failed, by itself; or one that stood and broke while nobody used it.
struct LinkEvent {
  WorldRank peer;
  LinkKey key;
  std::unique_ptr<Link> link;  ///< Null when it failed, and then `reason` says why.
  std::string reason;
  bool stood = false;
};

class Transport {
 public:
  virtual ~Transport() = default;

  /// For messages, and for the other end to know it by: "tcp".
  virtual std::string_view name() const = 0;

  /// Whether the two can have links of this kind; found out while the ranks met, and alike at both
  /// ends.
  virtual bool reaches(WorldRank peer) const = 0;
  /// How, for people: "shared memory", "tcp, 2 links, en0 10 Gbit/s MTU 1500".
  virtual std::string describe(WorldRank peer) const = 0;
  /// How many parallel links a pair has for one purpose; alike at both ends.
  virtual int rails(WorldRank) const { return 1; }

  /// Where the end that dials has several ways to the peer that nothing tells apart but a trial:
  /// those, for people. Else one.
  virtual std::vector<std::string> equal_ways(WorldRank) const { return {""}; }
  /// From now on links to the peer are dialled by this one of them.
  virtual void take_way(WorldRank, std::size_t) {}

  /// Begins a link, at the higher rank of the pair. Throws Error when this end cannot have it;
  /// where that comes out later, a LinkEvent says so before or at the deadline.
  virtual Making dial(WorldRank peer, const LinkKey& key, Clock::time_point deadline) = 0;
  /// Goes on with what the other end has told. Throws CorruptionError for what no honest peer can
  /// have told, and another Error when this end cannot have the link.
  virtual Making hear(WorldRank peer, const LinkKey& key, std::span<const std::byte> told) = 0;
  /// What the end that dialled has told of a link that this end does not want.
  virtual void refuse(WorldRank, const LinkKey&, std::span<const std::byte>) {}
  /// A link that this end has begun, at either end, is not wanted any more: no event follows.
  virtual void cancel(WorldRank peer, const LinkKey& key) = 0;

  /// Does what can be done now; appends what ended.
  virtual void progress(std::vector<LinkEvent>&) {}
  /// A peer that cannot be reached any more, and why, as the transport has found out beside what
  /// its links tell.
  struct LostPeer {
    WorldRank peer;
    std::string reason;
  };
  /// Since it was asked last.
  virtual std::vector<LostPeer> take_lost() { return {}; }
  /// Why peers that dial this rank get no link, once they have waited for a while; empty when they
  /// need not wait.
  virtual std::string accepting_trouble() const { return {}; }
  /// Adds what ends a sleep for progress(); the links have descriptors of their own.
  virtual void watch(std::vector<pollfd>&) const {}
  /// When progress() must be called again at the latest.
  virtual Clock::time_point next_deadline() const { return Clock::time_point::max(); }

  /// Before a sleep: from now on, what happens on links without a descriptor ends it. True when
  /// there may be such links, so that whoever calls this looks at them once more before sleeping.
  virtual bool arm() { return false; }
  /// Nobody sleeps any more. Called often, so cheap where arm() was not.
  virtual void disarm() {}

  /// In the child of a fork: closes its copies of descriptors, without a word to anybody.
  virtual void abandon() noexcept {}
};

}  // namespace mccl::transport
