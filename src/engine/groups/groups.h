// All groups that this rank has made and not closed, and the list of those with pending calls.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/rank.h"
#include "engine/calls/operation.h"
#include "engine/groups/group_records.h"
#include "engine/groups/group_state.h"
#include "engine/links/departing.h"
#include "engine/peers/control.h"

namespace mccl::engine {

/// The groups that this rank has made and not closed. Starts and advances their calls, and passes
/// peers' messages on to them. Used under the engine's progress lock.
class Groups {
 public:
  Groups(int ranks, Surroundings& surroundings);

  /// Adds a new group and handles the messages about it that arrived before it was made.
  void add(const std::shared_ptr<GroupState>& group);
  /// Removes a destroyed group. Allocates no memory.
  void remove(const std::shared_ptr<GroupState>& group) noexcept;
  /// Ends all groups for good because this rank leaves the job. Allocates no memory.
  void end_all() noexcept;

  /// Returns the group with this id; null if this rank has no such group.
  GroupState* find(std::uint64_t id) const;
  /// True if this rank made the group and has closed it.
  bool is_closed(std::uint64_t id) const { return unmade_.is_closed(id); }

  void start(const std::shared_ptr<Operation>& operation);
  /// Lets the driver continue a call that was begun on its caller's thread.
  void go_on_with(const std::shared_ptr<Operation>& operation);
  /// True if no group has calls.
  bool idle() const { return active_.empty(); }
  /// True if the callers of all calls will drive (GroupState::attended()).
  bool attended() const {
    return std::ranges::all_of(active_, [](const auto& group) { return group->attended(); });
  }
  /// Advances the calls of all groups. Returns false if no call made progress.
  bool advance(Clock::time_point now);
  /// Visits the groups that have calls.
  template <typename Visit>
  void for_each_active(const Visit& visit) const {
    for (const std::shared_ptr<GroupState>& group : active_) visit(*group);
  }
  template <typename Visit>
  void for_each(const Visit& visit) const {
    for (const auto& [id, group] : groups_) visit(*group);
  }

  /// Handles a peer's message about a group. Throws CorruptionError for a message that no correct
  /// peer sends.
  void hear(WorldRank peer, const ControlMessage& message);
  void lose(WorldRank peer, const std::string& reason, transport::Loss loss);
  /// Fails all groups that the peer is a member of, even groups whose calls do not need the peer.
  /// If `only_watched` is true, fails only those of them for which watch_failure() was called.
  void fail_without(WorldRank peer, const std::string& reason, bool only_watched);
  /// Fails the group because its link to a peer broke. Data sent through the link may be lost. The
  /// peer could then wait for that data while this rank has no call in flight that would detect the
  /// loss.
  void lose_link(WorldRank peer, std::uint64_t group, const std::string& reason);
  /// Fails all groups because of an error on this rank that belongs to no single group.
  void fail_all(const Failure& failure) noexcept;

  /// Links left by ended groups, kept until the peers have received all data sent on them.
  Departing& departing() { return departing_; }

 private:
  void activate(const std::shared_ptr<GroupState>& group);
  void end(GroupState& group, std::string_view reason, std::string_view announced) noexcept;
  void catch_up(GroupState& group);
  void hear_of_unmade(WorldRank peer, const ControlMessage& message);

  Surroundings& around_;
  std::map<std::uint64_t, std::shared_ptr<GroupState>> groups_;
  std::vector<std::shared_ptr<GroupState>> active_;  // groups with calls
  UnmadeGroups unmade_;
  Departing departing_;
};

}  // namespace mccl::engine
