#include "engine/groups/unmade_groups.h"

#include <fmt/format.h>

#include <new>

#include "mccl/error.h"

namespace mccl::engine {

void UnmadeGroups::keep(WorldRank peer, const ControlMessage& message) {
  std::size_t& bytes = bytes_[peer];
  if (bytes + bytes_of(message) > kMostBytesOfPeer) {
    throw CorruptionError(
        fmt::format("rank {} uses groups that this rank has not made, and its messages about them "
                    "take {} bytes: do both ranks make the same groups?",
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
