#include "engine/group_state.h"

#include <fmt/format.h>

#include <algorithm>

namespace mccl::engine {
namespace {

int index_of(const std::vector<int>& members, int world_rank) {
  const auto found = std::find(members.begin(), members.end(), world_rank);
  return found == members.end() ? -1 : static_cast<int>(found - members.begin());
}

}  // namespace

std::uint64_t group_id(const std::string& identity) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : identity) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  return hash == 0 ? 1 : hash;  // 0 is the id of control connections
}

GroupState::GroupState(std::string group_name, std::uint64_t group_id,
                       std::vector<int> group_members, int world_rank,
                       std::chrono::milliseconds group_timeout, const schedule::Facts& facts,
                       bool crc, Channels::Request request)
    : name(std::move(group_name)),
      id(group_id),
      members(std::move(group_members)),
      rank(index_of(members, world_rank)),
      timeout(group_timeout),
      channels(rank, size(), facts.chunk_bytes, crc, std::move(request)),
      window(rank, facts.nodes),
      plans(facts),
      executor(channels, window, recorder),
      messages(channels, facts.chunk_bytes),
      peer_status(members.size()) {}

int GroupState::rank_of(int world_rank) const { return index_of(members, world_rank); }

std::string GroupState::name_of_rank(int group_rank) const {
  const int world_rank = members[static_cast<std::size_t>(group_rank)];
  if (world_rank == group_rank) return fmt::format("rank {}", group_rank);
  return fmt::format("rank {} (rank {} of the job)", group_rank, world_rank);
}

std::vector<std::pair<int, transport::shm::RangePlace>> GroupState::release() {
  channels.close_all();
  plans.clear();
  executor.release_scratch();
  return window.release();
}

bool GroupState::fail(Failure failure) {
  std::lock_guard lock(failure_mutex_);
  if (failed_.load(std::memory_order_relaxed)) return false;
  failure_ = std::move(failure);
  failed_.store(true, std::memory_order_release);
  return true;
}

Failure GroupState::failure() const {
  std::lock_guard lock(failure_mutex_);
  return failure_;
}

}  // namespace mccl::engine
