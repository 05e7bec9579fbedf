// Finds the cables that end at this rank, and learns of all others.
//
// Every rank tries every address of every other, all at once. What connects and proves to be that
// rank is a cable. An address is ruled out when it fails although its rank is known to be there.
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
#include "rendezvous/cabling/trunk.h"
#include "rendezvous/dialing.h"

namespace mccl::rendezvous {

/// The two ends of a cable as this host names them, without ports.
struct CableEnds {
  transport::tcp::Address here;
  transport::tcp::Address there;
};

/// Not thread-safe. No call blocks but the constructor (name resolution).
class Discovery {
 public:
  /// `port`: at which all others reach this rank's listener, whatever the cable.
  Discovery(Party self, const AddressTable& table, std::uint16_t port, Log log);

  /// A neighbour has connected.
  void connected(int peer, transport::tcp::Socket socket, Clock::time_point now);
  /// Does what can be done now. A neighbour that tells nonsense is a fault, of which all ranks
  /// hear; once the ranks have agreed, its cable counts as cut instead.
  void advance(Clock::time_point now);
  void watch(std::vector<pollfd>& descriptors) const;
  Clock::time_point next_deadline() const;

  /// Nothing until all ranks have agreed on it.
  const std::optional<Cabling>& cabling() const { return link_state_.decided(); }
  /// Why there will never be one: the neighbours have been told. Empty while there may be.
  std::string fault(Clock::time_point now) const;
  /// Of a rank that has died while the ranks meet: the neighbours have been told. Empty while none
  /// has.
  std::string death(Clock::time_point now) const;
  /// From now on ranks may leave.
  void everyone_is_here() {
    are_meeting_ = false;
    probes_.clear();
  }
  /// This rank's addresses on the cables that stand.
  std::vector<transport::tcp::Address> own_ends() const;
  /// By cable of Cabling::between.
  std::vector<CableEnds> ends(int peer) const;
  std::uint16_t port_of(int rank) const { return link_state_.port_of(rank); }

  /// Tells the neighbours that this rank is there. Once the ranks have agreed.
  void beat();
  /// The cables along which nothing has come for so long, or nothing that makes sense, here or as
  /// others tell; each is told once.
  std::vector<CutCable> cut(Clock::time_point now, Clock::duration silence);

  void close() noexcept;

  /// Who is not there yet, and what was tried, for people.
  std::string trouble() const;

 private:
  /// A cable may have a trunk from either end.
  struct Known {
    Cable cable;
    CableEnds ends;
    bool is_lost = false;
  };

  void advance_trunks(Clock::time_point now);
  void misbehaves(Trunk& trunk, const std::string& how, Clock::time_point now);
  void fail(const CableNews& fault, Clock::time_point now);
  void lost(const Trunk& trunk, Clock::time_point now);
  void look_for_deaths(Clock::time_point now);
  void probe(int peer, Clock::time_point now);
  void advance_probes(Clock::time_point now);
  void tell_of_death(const std::string& why, Clock::time_point now);
  std::string death_of(int rank) const;
  bool is_joined_to(int peer) const;
  void advance_dials(Clock::time_point now);
  void take(const CableNews& news, Trunk& from, Clock::time_point now);
  void give_up(const Cable& cable, std::string why);
  /// To each neighbour on one of its trunks.
  void tell_neighbours(const CableNews& news, const Trunk* but);
  void spread_sightings();
  bool has_failed() const { return !link_state_.fault().empty(); }
  bool is_first(const Trunk& trunk) const;
  void look_around(Clock::time_point now);
  bool decide(Clock::time_point now);
  bool is_ruled_out(const Dial& dial, Clock::time_point now) const;
  std::vector<Cable> cables() const;

  Party self_;
  Log log_;
  std::vector<std::pair<int, transport::tcp::Address>> tried_;  ///< Peers and their addresses.
  LinkState link_state_;
  std::vector<Clock::time_point> known_since_;  ///< By rank; max() before.
  /// By rank: since when no trunk joins it to this rank any more. max() for a rank that has one,
  /// had none, or is being probed.
  std::vector<Clock::time_point> gone_since_;
  Clock::time_point death_told_ = Clock::time_point::max();  ///< After a death: by then.
  bool are_meeting_ = true;
  std::list<Dial> dials_;
  /// Once the ranks have agreed: to neighbours whose last trunk has ended, to learn whether they
  /// live.
  std::list<Dial> probes_;
  std::list<Trunk> trunks_;
  Clock::time_point next_look_{};
  /// Rank 0's: since when all ranks look for no more cables; max() while some do.
  Clock::time_point settled_since_ = Clock::time_point::max();
  Clock::time_point fault_told_ = Clock::time_point::max();  ///< After a fault: by then, or never.
  std::vector<Known> known_;  ///< Of the cables that were agreed on, those that end here.
};

}  // namespace mccl::rendezvous
