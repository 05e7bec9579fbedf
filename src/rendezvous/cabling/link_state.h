// Messages about cables, and the trunk, which is the connection that carries these messages between
// two neighbours. Neighbours are two ranks that a cable joins.
//
// LinkState holds one rank's knowledge of all cables at start-up. Each rank reports the cables that
// it sees to its neighbours, which forward the report. Once every rank has finished its search,
// rank 0 decides on the cabling, so all ranks get the same cabling. discovery.h makes the
// connections.
#pragma once

#include <poll.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/cabling.h"
#include "base/clock.h"
#include "rendezvous/connections/conversation.h"

namespace mccl::rendezvous {

/// The cables that end at one rank, as that rank sees them.
struct Sighting {
  int rank = 0;
  std::uint32_t version = 0;  ///< A higher version replaces a lower one.
  bool settled = false;       ///< True if the rank has finished looking for cables.
  std::uint16_t port = 0;     ///< Port at which the rank listens at its end of each cable.
  std::vector<Cable> cables;

  friend bool operator==(const Sighting&, const Sighting&) = default;
};

/// A message between neighbours about cables.
struct CableNews {
  enum class Kind : std::uint8_t {
    sighting,
    decision,  ///< Rank 0's decision: `sighting.cables` is the whole cabling.
    /// A rank at one end of `sighting.cables` reports that these cables no longer carry valid data.
    cut,
    fault,  ///< The ranks cannot agree because a rank violates the protocol; see `why`.
    alive,
    death,  ///< A rank's process ended at start-up; see `why`.
    /// The process of `sighting.rank` has ended after the agreement. Its neighbours report this.
    ended,
  };
  Kind kind = Kind::alive;
  Sighting sighting;     ///< In a decision and a cut, only `sighting.cables` is used.
  std::string why = {};  ///< Reason for a cut, a fault or a death; at most 255 bytes.
  std::vector<std::uint16_t> ports = {};  ///< In a decision: listening port of each rank.
};

inline constexpr std::size_t kNewsHeaderBytes = 4;

/// Returns the message as JSON, after a header of kNewsHeaderBytes with the length of the JSON.
Bytes encode(const CableNews& news);
/// Returns the number of bytes after the header. Throws CorruptionError if the number is 0 or
/// exceeds the maximum size of a message.
std::size_t news_bytes(std::span<const std::byte> header);
/// Decodes the bytes after the header. Throws CorruptionError for a message that no correct rank of
/// a job of `size` ranks sends.
CableNews decode_news(std::span<const std::byte> bytes, int size);

/// Returns the address without its port and scope. A scope is meaningful only on its own host.
/// Without the scope, both ranks get the same text for a cable.
std::string bare_host(const Address& address);

/// A connection along one cable to a neighbour, whose handshake has succeeded. Not thread-safe. No
/// call blocks.
class Trunk {
 public:
  /// `socket` connects the ranks `self` and `peer` of a job of `size` ranks. `number`: see
  /// Handshake::link_number().
  Trunk(Socket socket, std::uint64_t number, int self, int peer, int size, Clock::time_point now);

  std::uint64_t number() const { return number_; }
  int peer() const { return peer_; }
  /// The cable of this connection; equal on both ranks.
  const Cable& cable() const { return cable_; }
  /// The addresses of the two ends, with ports and with the scopes of this host.
  const Address& here() const { return here_; }
  const Address& there() const { return there_; }

  void send(const CableNews& news) { stream_.queue(encode(news)); }
  /// Queues a sighting of any rank, unless the same or a newer version was queued before.
  void send_once(const Sighting& sighting);
  /// Sends queued messages, and appends received ones to `news`. Throws CorruptionError if a
  /// received message is invalid. Returns false once the connection has ended.
  bool advance(Clock::time_point now, std::vector<CableNews>& news);
  Clock::time_point heard_at() const { return heard_at_; }

  /// True if no more messages are expected: the peer misbehaves or knows of a fault.
  bool given_up = false;

  pollfd watched() const { return stream_.watched(); }

 private:
  ByteStream stream_;
  std::uint64_t number_;
  int peer_;
  int size_;
  Address here_;
  Address there_;
  Cable cable_;
  Clock::time_point heard_at_;
  std::map<int, std::uint32_t> sent_versions_;  ///< Last sent version of each rank's sighting.
  Bytes input_;
};

/// A cable that no longer carries valid data.
struct CutCable {
  Cable cable;
  std::string why;
};

/// One rank's knowledge of all cables, and the decision on the cabling.
class LinkState {
 public:
  LinkState(int rank, int size, std::uint16_t port);

  /// Sets the cables that this rank sees. Returns true if they have changed.
  bool see(std::vector<Cable> cables, bool settled);
  /// Processes a message from a neighbour. Returns true if the message is new and the caller must
  /// pass it on to the other neighbours. If the message reports this rank's own cables, the caller
  /// must pass on own() instead. Throws CorruptionError for a decision that contradicts an earlier
  /// decision or does not connect all ranks.
  bool hear(const CableNews& news);

  const Sighting& own() const { return *known_[static_cast<std::size_t>(rank_)]; }
  /// The latest report of the rank; null if none has arrived.
  const Sighting* sighting_of(int rank) const {
    const auto& known = known_[static_cast<std::size_t>(rank)];
    return known ? &*known : nullptr;
  }
  /// True if the latest report of `rank` contains a cable between `rank` and `peer`.
  bool joins(int rank, int peer) const {
    return joined_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(peer)];
  }
  CableNews decision() const;
  /// Port at which the rank listens. Valid once there is a decision.
  std::uint16_t port_of(int rank) const { return ports_[static_cast<std::size_t>(rank)]; }

  /// Rank 0 only: true if all ranks have reported and have finished their search. decide() may then
  /// be called.
  bool all_settled() const;
  /// True if every cable that the rank at one end sees is also seen by the rank at the other end.
  /// If not, a message is still in flight, or a device on the cable translates addresses (NAT).
  bool both_ends_see_all() const;
  /// Rank 0 only: decides on the cables that both ends see. Returns false, without a decision, if
  /// these cables do not join all ranks.
  bool decide();
  /// The cabling on which rank 0 has decided; empty before the decision.
  const std::optional<Cabling>& decided() const { return decided_; }
  /// The reason why no cabling can be decided; empty if no fault is known. Later faults are
  /// ignored.
  const std::string& fault() const { return fault_; }
  /// Describes the first reported death of a rank; empty if there is none.
  const std::string& death() const { return death_; }
  CableNews fault_news() const { return {CableNews::Kind::fault, {}, fault_, {}}; }

  /// The ranks whose report has not arrived.
  std::vector<int> unheard() const;
  /// The ranks that have reported, but still look for cables.
  std::vector<int> unsettled() const;

  bool is_cut(const Cable& cable) const { return std::ranges::find(cut_, cable) != cut_.end(); }
  /// True if the process of the rank is reported to have ended after the agreement.
  bool has_ended(int rank) const { return ended_.contains(rank); }
  /// Returns the cables that have been reported as cut since the last call.
  std::vector<CutCable> take_cut() { return std::exchange(new_cut_, {}); }

 private:
  bool hear_of_cut(const CableNews& news);
  void note_joints(int rank);
  bool is_seen_by(int rank, const Cable& cable) const;
  bool is_seen_by_both(const Cable& cable) const {
    return is_seen_by(cable.a, cable) && is_seen_by(cable.b, cable);
  }
  bool hear_of_itself(const Sighting& reported);

  int rank_;
  int size_;
  std::vector<std::optional<Sighting>> known_;  ///< Indexed by rank.
  std::vector<std::vector<bool>> joined_;       ///< Indexed by rank and peer; see joins().
  std::optional<Cabling> decided_;
  std::vector<std::uint16_t> ports_;
  std::string fault_;
  std::string death_;
  std::set<int> ended_;
  std::vector<Cable> cut_;
  std::vector<CutCable> new_cut_;
};

}  // namespace mccl::rendezvous
