// What peers say of groups that this rank has not made yet, or has made and closed. A rank that is
// slow to make its groups loses nothing; a rank that speaks of a closed group can be told so.
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

/// Used under the engine's progress lock.
class UnmadeGroups {
 public:
  /// Of one peer: room for what it says of a hundred thousand groups.
  static constexpr std::size_t kMostBytesOfPeer = std::size_t{32} << 20;
  /// Closed groups that are remembered, the last ones.
  static constexpr std::size_t kMostClosed = std::size_t{1} << 17;

  using Said = std::vector<std::pair<WorldRank, ControlMessage>>;

  explicit UnmadeGroups(int ranks) : bytes_(static_cast<std::size_t>(ranks), 0) {}

  /// Throws CorruptionError when the peer has said more than any program can mean.
  void keep(WorldRank peer, const ControlMessage& message);
  /// What was kept of the group, in order.
  Said take(std::uint64_t group);

  /// This rank makes the group. Throws std::bad_alloc, and then nothing has happened.
  void made(std::uint64_t group);
  /// It has destroyed the group. No-op for one that it has not made.
  void closed(std::uint64_t group) noexcept;
  bool is_closed(std::uint64_t group) const;

 private:
  static std::size_t bytes_of(const ControlMessage& message) {
    return sizeof(Said::value_type) + message.bytes();
  }

  std::map<std::uint64_t, Said> said_;
  ByRank<WorldRank, std::size_t> bytes_;  // of what is kept of each peer
  /// Where a group that this rank has made stands in one of the two lists. Made with the group, so
  /// that closing it needs no memory.
  struct Made {
    std::list<std::uint64_t>::iterator place;
    bool closed = false;
  };
  std::unordered_map<std::uint64_t, Made> made_;
  std::list<std::uint64_t> open_;
  std::list<std::uint64_t> closed_;  // the last one to be closed at the end
};

}  // namespace mccl::engine
