// Keeps peers' messages about groups that this rank has not made yet, so that a rank which is slow
// to make its groups loses nothing. Remembers closed groups, so that messages about them can be
// answered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/rank.h"
#include "engine/peers/control.h"

namespace mccl::engine {

/// The messages about groups that this rank has not made, and the identities of groups that it has
/// closed. Used under the engine's progress lock.
class UnmadeGroups {
 public:
  /// Maximum bytes of messages kept per peer: enough for messages about a hundred thousand groups.
  static constexpr std::size_t kMostBytesOfPeer = std::size_t{32} << 20;
  /// Maximum number of closed groups to remember. Beyond it, the oldest are forgotten.
  static constexpr std::size_t kMostClosed = std::size_t{1} << 17;

  using Said = std::vector<std::pair<WorldRank, ControlMessage>>;

  explicit UnmadeGroups(int ranks) : bytes_(static_cast<std::size_t>(ranks), 0) {}

  /// Keeps a message about a group. Throws CorruptionError if the peer has sent more than any
  /// correct program would.
  void keep(WorldRank peer, const ControlMessage& message);
  /// Removes and returns the messages kept for the group, in order.
  Said take(std::uint64_t group);

  /// Called when this rank makes the group. If there is no memory, throws std::bad_alloc without
  /// any effect.
  void made(std::uint64_t group);
  /// Called when this rank destroys the group. No-op for a group that it has not made.
  void closed(std::uint64_t group) noexcept;
  bool is_closed(std::uint64_t group) const;

 private:
  static std::size_t bytes_of(const ControlMessage& message) {
    return sizeof(Said::value_type) + message.bytes();
  }

  std::map<std::uint64_t, Said> said_;
  ByRank<WorldRank, std::size_t> bytes_;  // bytes kept per peer
  /// Position of a group in `open_` or `closed_`. Allocated when the group is made, so that closing
  /// it needs no memory.
  struct Made {
    std::list<std::uint64_t>::iterator place;
    bool closed = false;
  };
  std::unordered_map<std::uint64_t, Made> made_;
  std::list<std::uint64_t> open_;
  std::list<std::uint64_t> closed_;  // in the order of closing
};

}  // namespace mccl::engine
