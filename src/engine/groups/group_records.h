// Bounded records of groups: the names of existing and earlier groups, messages about groups that
// this rank has not made yet, and the groups that it has closed. Ranks do not make and close a
// group at the same time, so other ranks may send messages about a group that does not exist on
// this rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/rank.h"
#include "engine/peers/control.h"

namespace mccl::engine {

/// The names of existing groups, and a bounded number of names of destroyed groups. Not
/// thread-safe; Engine guards its object by the inbox's lock.
class GroupNames {
 public:
  /// Maximum number of names that are remembered. If there are more, the names of the groups that
  /// were destroyed first are forgotten. A forgotten name counts as new when it is used again.
  /// Limitation: a rank that was in many other groups may have forgotten a name that another rank
  /// still remembers. The two ranks then give the next group of that name different numbers, so
  /// they cannot connect in that group.
  static constexpr std::size_t kMost = std::size_t{1} << 18;

  explicit GroupNames(std::size_t most = kMost) : most_(most) {}

  /// Records that a new group has the name. `identity` is a hash of name and members. Returns how
  /// many groups with this identity have been made, including the new one. Returns nullopt if an
  /// existing group has the name.
  std::optional<std::uint32_t> give(const std::string& name, std::uint64_t identity);
  /// Undoes the last give() of the name. Called if the group could not be made.
  void take_back(const std::string& name) noexcept;
  /// Allows a new group to take the name. Called when the group of that name is destroyed.
  void give_up(const std::string& name);

  std::size_t size() const { return times_.size(); }

 private:
  struct Times {
    std::uint32_t given = 0;
    /// Position in given_up_; end() while a group with this identity exists.
    std::list<std::uint64_t>::iterator given_up;
  };

  void forget_the_oldest();

  const std::size_t most_;
  std::map<std::string, std::uint64_t> living_;  // identities of existing groups, by name
  // Keyed by identity, so that no text is stored for the names of destroyed groups.
  std::unordered_map<std::uint64_t, Times> times_;
  std::list<std::uint64_t> given_up_;  // identities of destroyed groups, oldest first
};

/// The messages about groups that this rank has not made, and the identities of groups that it has
/// closed. Used under the engine's progress lock.
class UnmadeGroups {
 public:
  /// Maximum number of bytes of messages that are kept for each peer: enough for messages about a
  /// hundred thousand groups.
  static constexpr std::size_t kMostBytesOfPeer = std::size_t{32} << 20;
  /// Maximum number of closed groups to remember. If more groups are closed, the oldest are
  /// forgotten.
  static constexpr std::size_t kMostClosed = std::size_t{1} << 17;

  using Said = std::vector<std::pair<WorldRank, ControlMessage>>;

  explicit UnmadeGroups(int ranks) : bytes_(static_cast<std::size_t>(ranks), 0) {}

  /// Keeps a message about a group. Throws CorruptionError if more than kMostBytesOfPeer bytes
  /// would be kept for the peer.
  void keep(WorldRank peer, const ControlMessage& message);
  /// Removes and returns the messages kept for the group, in order.
  Said take(std::uint64_t group);

  /// Records that this rank makes the group. If there is no memory, throws std::bad_alloc without
  /// any effect.
  void made(std::uint64_t group);
  /// Records that this rank has destroyed the group. No-op for a group that this rank has not made.
  void closed(std::uint64_t group) noexcept;
  bool is_closed(std::uint64_t group) const;

 private:
  static std::size_t bytes_of(const ControlMessage& message) {
    return sizeof(Said::value_type) + message.bytes();
  }

  std::map<std::uint64_t, Said> said_;
  ByRank<WorldRank, std::size_t> bytes_;  // bytes kept per peer
  /// Position of a group in `open_` or `closed_`. The list element is allocated when the group is
  /// made, so that closing the group needs no memory.
  struct Made {
    std::list<std::uint64_t>::iterator place;
    bool closed = false;
  };
  std::unordered_map<std::uint64_t, Made> made_;
  std::list<std::uint64_t> open_;
  std::list<std::uint64_t> closed_;  // in the order in which the groups were closed
};

}  // namespace mccl::engine
