// Distributes the knowledge of all cables at start-up. Each rank reports the cables that it sees to
// its neighbours, which forward the report. Once every rank has finished its search, rank 0 decides
// on the cabling. All ranks therefore get the same one, whatever the order of messages. The sockets
// are in cabling/discovery.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/cabling.h"
#include "rendezvous/cabling/trunk.h"

namespace mccl::rendezvous {

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
  /// pass it on to the other neighbours. If it is a sighting with this rank's number, the caller
  /// must send own() in its place. Throws CorruptionError if ranks contradict each other.
  bool hear(const CableNews& news);

  const Sighting& own() const { return *known_[static_cast<std::size_t>(rank_)]; }
  /// Null if no report of the rank has arrived.
  const Sighting* sighting_of(int rank) const {
    const auto& known = known_[static_cast<std::size_t>(rank)];
    return known ? &*known : nullptr;
  }
  /// True if `rank` has reported a cable to `peer`.
  bool joins(int rank, int peer) const {
    return joined_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(peer)];
  }
  CableNews decision() const;
  /// Valid once there is a decision, even for ranks whose report has not arrived here.
  std::uint16_t port_of(int rank) const { return ports_[static_cast<std::size_t>(rank)]; }

  /// Rank 0 only: true if all ranks have reported and have finished their search. decide() may then
  /// be called.
  bool all_settled() const;
  /// True if every cable that one end sees is also seen by the other. If not, a message is still in
  /// flight, or something on the cable translates addresses.
  bool both_ends_see_all() const;
  /// Rank 0 only: decides on the cables that both ends see. Returns false, without a decision, if
  /// these cables do not join all ranks.
  bool decide();
  /// Empty before the decision.
  const std::optional<Cabling>& decided() const { return decided_; }
  /// The reason why the ranks cannot decide; empty if no fault is known. A fault after the decision
  /// is ignored.
  const std::string& fault() const { return fault_; }
  /// Describes the first reported death of a rank; empty if there is none.
  const std::string& death() const { return death_; }
  CableNews fault_news() const { return {CableNews::Kind::fault, {}, fault_, {}}; }

  /// The ranks whose report has not arrived.
  std::vector<int> unheard() const;
  /// The ranks that have reported and still look for cables.
  std::vector<int> unsettled() const;

  /// Returns the cables that have been cut since the last call.
  std::vector<CutCable> take_cut() { return std::exchange(new_cut_, {}); }

 private:
  bool hear_of_cut(const CableNews& news);
  void note_joints(int rank);
  bool is_seen_by(int rank, const Cable& cable) const;
  bool is_seen_by_both(const Cable& cable) const {
    return is_seen_by(cable.a, cable) && is_seen_by(cable.b, cable);
  }
  bool hear_of_itself(const Sighting& told);

  int rank_;
  int size_;
  std::vector<std::optional<Sighting>> known_;  ///< Indexed by rank.
  std::vector<std::vector<bool>> joined_;       ///< Indexed by rank and peer; see joins().
  std::optional<Cabling> decided_;
  std::vector<std::uint16_t> ports_;
  std::string fault_;
  std::string death_;
  std::vector<Cable> cut_;
  std::vector<CutCable> new_cut_;
};

}  // namespace mccl::rendezvous
