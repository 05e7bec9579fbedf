#include "engine/groups/unmade_groups.h"

#include <fmt/format.h>

#include <new>

#include "mccl/error.h"

namespace mccl::engine {

void UnmadeGroups::keep(WorldRank peer, const ControlMessage& message) {
  std::size_t& bytes = bytes_[peer];
  if (bytes + bytes_of(message) > kMostBytesOfPeer) {
    throw CorruptionError(
        fmt::format("rank {} has used groups that this rank has not made, until what it said of "
                    "them takes {} bytes: do both make the same groups?",
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

void UnmadeGroups::closed(std::uint64_t group) {
  if (closed_.contains(group)) return;
  closed_in_order_.push_back(group);
  try {
    closed_.insert(group);
  } catch (const std::bad_alloc&) {
    closed_in_order_.pop_back();
    throw;
  }
  if (closed_in_order_.size() <= kMostClosed) return;
  closed_.erase(closed_in_order_.front());
  closed_in_order_.pop_front();
}

}  // namespace mccl::engine
