#include "engine/groups/group_records.h"

#include <fmt/format.h>

#include <new>

#include "mccl/error.h"

namespace mccl::engine {

std::optional<std::uint32_t> GroupNames::give(const std::string& name, std::uint64_t identity) {
  if (living_.contains(name)) return std::nullopt;
  const auto [found, is_new] = times_.try_emplace(identity, Times{0, given_up_.end()});
  try {
    living_.emplace(name, identity);
  } catch (const std::bad_alloc&) {
    if (is_new) times_.erase(found);
    throw;
  }
  Times& times = found->second;
  if (times.given_up != given_up_.end()) given_up_.erase(times.given_up);
  times.given_up = given_up_.end();
  if (is_new) forget_the_oldest();
  return ++times.given;
}

void GroupNames::take_back(const std::string& name) noexcept {
  const auto living = living_.find(name);
  const auto times = times_.find(living->second);
  if (times != times_.end() && --times->second.given == 0) times_.erase(times);
  living_.erase(living);
}

void GroupNames::give_up(const std::string& name) {
  const auto living = living_.find(name);
  if (living == living_.end()) return;
  const auto times = times_.find(living->second);
  // Two groups whose identities have the same hash share an entry, so the entry may be in given_up_
  // already.
  if (times != times_.end() && times->second.given_up == given_up_.end()) {
    try {
      times->second.given_up = given_up_.insert(given_up_.end(), living->second);
    } catch (const std::bad_alloc&) {
      // Memory has run out: the entry of times_ is kept forever, but the name can be used again.
    }
  }
  living_.erase(living);
  forget_the_oldest();
}

void GroupNames::forget_the_oldest() {
  while (times_.size() > most_ && !given_up_.empty()) {
    times_.erase(given_up_.front());
    given_up_.pop_front();
  }
}

void UnmadeGroups::keep(WorldRank peer, const ControlMessage& message) {
  std::size_t& bytes = bytes_[peer];
  if (bytes + bytes_of(message) > kMostBytesOfPeer) {
    throw CorruptionError(
        fmt::format("rank {} has sent {} bytes of messages about groups that this rank has not "
                    "created, and no more are kept: create the same groups on both ranks",
                    peer, bytes));
  }
  said_[message.key.group].emplace_back(peer, message);
  bytes += bytes_of(message);
}

UnmadeGroups::Said UnmadeGroups::take(std::uint64_t group) {
  auto found = said_.extract(group);
  if (found.empty()) return {};
  for (const auto& [peer, message] : found.mapped()) {
    bytes_[peer] -= bytes_of(message);
  }
  return std::move(found.mapped());
}

void UnmadeGroups::made(std::uint64_t group) {
  const auto [made, is_new] = made_.try_emplace(group);
  if (!is_new) return;
  try {
    made->second.place = open_.insert(open_.end(), group);
  } catch (const std::bad_alloc&) {
    made_.erase(made);
    throw;
  }
}

void UnmadeGroups::closed(std::uint64_t group) noexcept {
  const auto made = made_.find(group);
  if (made == made_.end() || std::exchange(made->second.closed, true)) return;
  closed_.splice(closed_.end(), open_, made->second.place);
  if (closed_.size() <= kMostClosed) return;
  made_.erase(closed_.front());
  closed_.pop_front();
}

bool UnmadeGroups::is_closed(std::uint64_t group) const {
  const auto made = made_.find(group);
  return made != made_.end() && made->second.closed;
}

}  // namespace mccl::engine
