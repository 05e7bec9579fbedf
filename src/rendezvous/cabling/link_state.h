// What every rank comes to know of all cables while the ranks meet: each tells its neighbours what
// it sees, they pass it on, and when everybody has seen all there is rank 0 decides. So all have
// the same picture, whatever arrived when. Without sockets: see cabling/switchboard.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/cabling.h"
#include "rendezvous/wire.h"

namespace mccl::rendezvous {

/// What one rank sees: the cables that end at it.
struct Sighting {
  int rank = 0;
  std::uint32_t version = 0;  ///< The higher is the newer one.
  bool settled = false;       ///< It looks for no more.
  std::uint16_t port = 0;     ///< At which it listens behind each of its cables.
  std::vector<Cable> cables;

  friend bool operator==(const Sighting&, const Sighting&) = default;
};

/// What neighbours tell each other.
struct CableNews {
  enum class Kind : std::uint8_t {
    sighting,
    decision,  ///< Rank 0's: `cables` are all that there are.
    cut,       ///< Nothing good comes along `cables` any more, as one of their ends has found.
    fault,     ///< The ranks cannot agree, since one of them misbehaves: `why` names it.
    alive,
    death,  ///< A rank's process has ended while the ranks met: `why` names it.
  };
  Kind kind = Kind::alive;
  Sighting sighting;     ///< Of anything but a sighting, only its cables count.
  std::string why = {};  ///< Of a cut, a fault or a death, for people; at most 255 bytes.
  std::vector<std::uint16_t> ports = {};  ///< Of a decision: at which each rank listens.
};

struct CutCable {
  Cable cable;
  std::string why;
};

inline constexpr std::size_t kNewsHeaderBytes = 4;
inline constexpr std::size_t kMostNewsBytes = std::size_t{1} << 24;

/// With its length in front.
Bytes encode(const CableNews& news);
/// How many bytes come after the header; throws CorruptionError for more than there may be.
std::size_t news_bytes(std::span<const std::byte> header);
/// Throws CorruptionError for what no rank of `size` can have told.
CableNews decode_news(std::span<const std::byte> bytes, int size);

class LinkState {
 public:
  LinkState(int rank, int size, std::uint16_t port);

  /// What this rank sees now. True when that is news.
  bool see(std::vector<Cable> cables, bool settled);
  /// What a neighbour tells. True when that is news, to be passed on to the others; where it is a
  /// sighting of this rank's, own() is. Throws CorruptionError where ranks contradict each other.
  bool hear(const CableNews& news);

  const Sighting& own() const { return *known_[static_cast<std::size_t>(rank_)]; }
  bool knows(int rank) const { return known_[static_cast<std::size_t>(rank)].has_value(); }
  /// Null before it was heard of.
  const Sighting* sighting_of(int rank) const {
    const auto& known = known_[static_cast<std::size_t>(rank)];
    return known ? &*known : nullptr;
  }
  /// Whether `rank` has said that a cable joins it to `peer`.
  bool joins(int rank, int peer) const {
    return joined_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(peer)];
  }
  CableNews decision() const;
  /// Once there is a decision, whether its rank was heard of here or not.
  std::uint16_t port_of(int rank) const { return ports_[static_cast<std::size_t>(rank)]; }

  /// Rank 0: whether all have been heard and look for no more; then decide() makes a decision of
  /// the cables that both ends see.
  bool all_settled() const;
  /// Whether all cables that one end sees are seen by the other: if not, a word is on its way,
  /// unless something on the cable changes addresses.
  bool both_ends_see_all() const;
  /// False where those do not join all ranks.
  bool decide();
  /// Nothing before the decision.
  const std::optional<Cabling>& decided() const { return decided_; }
  /// Why there will be none; empty while there may be one. After it a fault is nothing.
  const std::string& fault() const { return fault_; }
  /// Of the first rank that has died, as news have it; empty while none has.
  const std::string& death() const { return death_; }
  CableNews fault_news() const { return {CableNews::Kind::fault, {}, fault_, {}}; }

  /// The ranks that nothing was heard of, and those that still look for cables.
  std::vector<int> unheard() const;
  std::vector<int> unsettled() const;

  /// The cables that were cut, since it was asked last.
  std::vector<CutCable> take_cut() { return std::exchange(new_cut_, {}); }

 private:
  bool hear_of_cut(const CableNews& news);
  void note_joints(int rank);
  bool sees(int rank, const Cable& cable) const;
  bool hear_of_itself(const Sighting& told);

  int rank_;
  int size_;
  std::vector<std::optional<Sighting>> known_;  ///< By rank.
  std::vector<std::vector<bool>> joined_;       ///< By rank, and by the one it is joined to.
  std::optional<Cabling> decided_;
  std::vector<std::uint16_t> ports_;
  std::string fault_;
  std::string death_;
  std::vector<Cable> cut_;
  std::vector<CutCable> new_cut_;
};

}  // namespace mccl::rendezvous
