// The groups that this rank has made, and those that it has calls for.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/rank.h"
#include "engine/calls/operation.h"
#include "engine/groups/group_state.h"
#include "engine/groups/surroundings.h"
#include "engine/groups/unmade_groups.h"
#include "engine/links/departing.h"
#include "engine/peers/control.h"
#include "engine/peers/heart.h"

namespace mccl::engine {

/// Used under the engine's progress lock.
class Groups {
 public:
  Groups(int ranks, Surroundings& surroundings);

  /// A group is made; what was said of it before is taken up.
  void add(const std::shared_ptr<GroupState>& group);
  /// It is destroyed. Needs no memory, as end_all().
  void remove(const std::shared_ptr<GroupState>& group) noexcept;
  /// All of them end, for good: this rank leaves the job.
  void end_all() noexcept;

  /// Null when there is none.
  GroupState* find(std::uint64_t id) const;
  /// Whether a group was here once.
  bool is_closed(std::uint64_t id) const { return unmade_.is_closed(id); }

  void start(const std::shared_ptr<Operation>& operation);
  /// The call was begun at once, and goes on as any other.
  void go_on_with(const std::shared_ptr<Operation>& operation);
  /// Whether no group has calls.
  bool idle() const { return active_.empty(); }
  /// Moves the calls of all groups; false if nothing moved.
  bool advance(Clock::time_point now);
  void watch(Sleep& sleep) const;
  void watch_time(Clock::time_point now);
  void release_idle(Clock::time_point now);
  /// Fails the groups whose data is lost on the way to a peer that is heard all the same.
  void watch_delivery(Clock::time_point now, const Heart& heart);

  /// What a peer says of a group. Throws CorruptionError.
  void hear(WorldRank peer, const ControlMessage& message);
  void lose(WorldRank peer, const std::string& reason, transport::Loss loss);
  /// A peer lives that the others cannot talk with any more: groups that it is in end, even where
  /// their calls get on without it.
  void fail_without(WorldRank peer, const std::string& reason);
  /// A group's link to the peer broke, and what was sent by it may not have arrived: the peer may
  /// wait for that where this rank has no call that would tell of it.
  void lose_link(WorldRank peer, std::uint64_t group, const std::string& reason);
  /// A peer has died: groups that it is in end where somebody asked to be told.
  void fail_watched(WorldRank peer, const std::string& reason);
  /// Something went wrong on this rank that is no single group's matter.
  void fail_all(const Failure& failure) noexcept;

  /// Links of ended groups that still have bytes on their way.
  Departing& departing() { return departing_; }
  void for_each(const std::function<void(GroupState&)>& visit) const;

 private:
  void activate(const std::shared_ptr<GroupState>& group);
  void end(GroupState& group, std::string_view reason, std::string_view announced) noexcept;
  void catch_up(GroupState& group);
  void hear_of_unmade(WorldRank peer, const ControlMessage& message);

  Surroundings& around_;
  std::map<std::uint64_t, std::shared_ptr<GroupState>> groups_;
  std::vector<std::shared_ptr<GroupState>> active_;  // those with calls
  UnmadeGroups unmade_;
  Departing departing_;
};

}  // namespace mccl::engine
