// Finds the cables that end at this rank, and collects the reports of the other ranks about their
// cables (each report is a Sighting).
//
// Every rank tries every address of every other rank in parallel. A connection counts as a cable if
// the handshake proves that the dialed rank is at its other end; the connection is then a trunk of
// that cable (link_state.h). An address is ruled out if its rank is known to run, but no connection
// to the address succeeds.
#pragma once

#include <poll.h>

#include <list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "rendezvous/cabling/hostfile.h"
#include "rendezvous/cabling/link_state.h"
#include "rendezvous/connections/dialing.h"

namespace mccl::rendezvous {

/// Addresses of the two ends of a cable, without ports. IPv6 scope ids are those of this host.
struct CableEnds {
  Address here;
  Address there;
};

/// Searches for the cables of one rank, and takes part in the agreement of all ranks on the
/// cabling. Not thread-safe. Only the constructor may block (name resolution).
class Discovery {
 public:
  /// `port` is the port at which all other ranks reach this rank's listener, on every cable.
  Discovery(Party self, const AddressTable& table, std::uint16_t port, Log log);

  /// Adds `socket`, whose handshake has succeeded, as a trunk to `peer`. `number`: see
  /// Handshake::link_number().
  void connected(int peer, Socket socket, std::uint64_t number, Clock::time_point now);
  /// Adds a trunk that `peer` has made in place of the trunk `number`. No-op if this rank never had
  /// that trunk, as after a restart of the peer.
  void connected_again(int peer, Socket socket, std::uint64_t number, Clock::time_point now);
  /// Does all work that is possible without blocking. A neighbour that sends invalid messages
  /// causes a fault, which is reported to all ranks; after the agreement, its cable counts as cut.
  void advance(Clock::time_point now);
  void watch(std::vector<pollfd>& descriptors) const;
  Clock::time_point next_deadline() const;

  /// The cabling on which the ranks have agreed; empty before the agreement.
  const std::optional<Cabling>& cabling() const { return link_state_.decided(); }
  /// Returns the reason why the ranks cannot agree on a cabling; empty if no fault is known. A
  /// fault is returned only once the neighbours know of it or kToSpreadFault has passed.
  std::string fault(Clock::time_point now) const;
  /// Describes a rank that died at start-up; empty if no death is known. Before the agreement, a
  /// death is returned only after kToSpreadDeath, so that the neighbours can read the report first.
  std::string death(Clock::time_point now) const;
  /// Must be called once all ranks are connected. A rank that ends later does not count as dead.
  void everyone_is_here() {
    are_meeting_ = false;
    probes_.clear();
  }
  /// Returns this rank's own address on each trunk.
  std::vector<Address> own_ends() const;
  /// Returns the two ends of each agreed cable to a peer, in the order of Cabling::between.
  std::vector<CableEnds> ends(int peer) const;
  const LinkState& link_state() const { return link_state_; }

  /// Sends an "alive" message on every trunk, so that the peer does not count its cable as cut.
  /// Must be called repeatedly after the agreement.
  void beat();
  /// Returns the agreed cables whose cut has become known to this rank since the last call. A cable
  /// counts as cut if a rank at one of its ends says so, or if nothing has arrived on it for
  /// `silence` and no other cable joins the same two ranks. Makes a new trunk for a cable whose
  /// trunk has ended or is silent, once all ranks are connected.
  std::vector<CutCable> cut(Clock::time_point now, Clock::duration silence);
  /// Returns this rank's cables that have fallen silent since the last call, while other cables
  /// join the same ranks.
  std::vector<Cable> take_interrupted() { return std::exchange(interrupted_, {}); }

  void close() noexcept;

  /// Explains, for an error message, why the ranks have not agreed yet. Lists the ranks that have
  /// not reported, with the result at each of their addresses; if all have reported, lists the
  /// ranks that still search.
  std::string trouble() const;

 private:
  static constexpr Clock::time_point kNever = Clock::time_point::max();
  struct Peer {
    /// Time at which a Sighting first showed that the peer runs; kNever if it is not known to run.
    Clock::time_point known_since = kNever;
    /// Time at which the peer's last trunk to this rank ended. kNever if the peer has a trunk,
    /// never had one, or has been probed since its last trunk ended.
    Clock::time_point gone_since = kNever;
  };
  /// An agreed cable that ends at this rank.
  struct Known {
    Cable cable;
    CableEnds ends;
    Clock::time_point heard_at;  ///< Time at which a message arrived over a trunk of the cable.
    std::vector<std::uint64_t> numbers = {};  ///< Numbers of the cable's trunks at the agreement.
    std::optional<Dial> dial = {};            ///< For a new trunk.
    Clock::time_point next_dial = {};
    bool is_lost = false;         ///< True if the cable counts as cut.
    bool is_interrupted = false;  ///< True if the cable is silent, but is not the pair's last one.
    bool has_left = false;        ///< True if the process at the other end has ended.
  };

  /// A rank without a trunk to this rank for this long counts as dead: a restarted process
  /// reconnects sooner. Applies once all ranks have reported, until they agree.
  static constexpr Clock::duration kGoneForGood = std::chrono::seconds(1);
  /// Time for the neighbours to read a death before this rank fails and closes its trunks.
  static constexpr Clock::duration kToSpreadDeath = milliseconds(200);
  static constexpr const char* kGoneTooSoon =
      "it was disconnected before all ranks had agreed to use it";

  DialRequest request_for(int peer, std::size_t index, const Address& to,
                          Clock::time_point not_before = {}) const;
  void advance_trunks(Clock::time_point now);
  void misbehaves(Trunk& trunk, const std::string& how, Clock::time_point now);
  void fail(const CableNews& fault, Clock::time_point now);
  void lost(const Trunk& trunk, Clock::time_point now);
  void look_for_deaths(Clock::time_point now);
  void probe(int peer, Clock::time_point now);
  void advance_probes(Clock::time_point now);
  void report_death(const std::string& why, Clock::time_point now);
  std::string death_of(int rank) const;
  bool is_joined_to(int peer) const;
  Peer& state_of(int peer) { return peers_[static_cast<std::size_t>(peer)]; }
  const Peer& state_of(int peer) const { return peers_[static_cast<std::size_t>(peer)]; }
  int other_end_of(const Cable& cable) const { return cable.a == self_.rank ? cable.b : cable.a; }
  void advance_dials(Clock::time_point now);
  void take(const CableNews& news, Trunk& from, Clock::time_point now);
  void give_up(const Cable& cable, std::string why);
  bool has_trunk(const Known& known) const;
  void interrupt(const Known& known, Clock::duration silence);
  bool has_parallel_cable(const Known& known, Clock::time_point heard_since) const;
  void connect_again(Known& known, Clock::duration limit, Clock::time_point now);
  /// Sends the message to each neighbour except the peer of the trunk `but`, which may be null.
  /// Uses the first trunk to that neighbour; after the agreement, all of them, because one of them
  /// may have stopped working.
  void send_to_neighbours(const CableNews& news, const Trunk* but);
  void spread_sightings();
  bool has_failed() const { return !link_state_.fault().empty(); }
  bool is_first(const Trunk& trunk) const;
  void look_around(Clock::time_point now);
  bool decide(Clock::time_point now);
  bool is_ruled_out(const Dial& dial, Clock::time_point now) const;
  std::vector<Cable> cables() const;

  Party self_;
  Log log_;
  /// All addresses to dial, each with its rank.
  std::vector<std::pair<int, Address>> tried_;
  LinkState link_state_;
  std::vector<Peer> peers_;  ///< Indexed by rank.
  /// Time from which death() returns the known death; kNever while no death is known.
  Clock::time_point death_spread_at_ = kNever;
  bool are_meeting_ = true;
  std::list<Dial> dials_;
  /// Dials to neighbours whose last trunk has ended after the agreement: are they alive?
  std::list<Dial> probes_;
  std::list<Trunk> trunks_;
  Clock::time_point next_look_{};
  /// Rank 0 only: time at which the last rank finished its search; kNever before.
  Clock::time_point settled_since_ = kNever;
  /// Time from which fault() returns the known fault even if some neighbours have not confirmed
  /// that they know of it; kNever while no fault is known.
  Clock::time_point fault_spread_at_ = kNever;
  std::vector<Known> known_;
  std::vector<Cable> interrupted_;  ///< See take_interrupted().
};

}  // namespace mccl::rendezvous
