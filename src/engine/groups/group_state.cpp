#include "engine/groups/group_state.h"

#include <iterator>
#include <set>
#include <utility>

namespace mccl::engine {
namespace {

/// Returns the number of nodes. `nodes`: the node of each member; empty if no two members share a
/// node.
int count_nodes(const std::vector<int>& nodes, std::size_t members) {
  if (nodes.empty()) return static_cast<int>(members);
  return static_cast<int>(std::set<int>(nodes.begin(), nodes.end()).size());
}

FlightGroup flight_group(const Membership& membership, const LinkMaker& links) {
  FlightGroup group{membership.name, membership.id, membership.rank.number()};
  for (GroupRank member(0); member < membership.members.end_rank(); ++member) {
    const WorldRank peer = membership.members[member];
    group.members.push_back(peer.number());
    group.transports.emplace_back(member == membership.rank ? "" : links.transport_to(peer));
  }
  return group;
}

schedule::Facts with_a_window(schedule::Facts facts) {
  if (!facts.nodes.empty()) facts.window_bytes = kUsualCallBytes;
  return facts;
}

}  // namespace

GroupState::GroupState(Membership membership, std::chrono::milliseconds timeout,
                       schedule::Facts facts, const Compression& compression,
                       Surroundings& surroundings)
    : membership_(std::move(membership)),
      timeout_(timeout),
      compression_(compression),
      nodes_(count_nodes(facts.nodes, membership_.members.size())),
      assumed_(with_a_window(facts)),
      around_(surroundings),
      channels_(
          membership_, surroundings.config.chunk_bytes, surroundings.config.transport_crc,
          [this](transport::Purpose purpose, GroupRank member) {
            around_.links.request(membership_, purpose, member);
          },
          [this] { weigh(); }),
      window_(membership_.rank, ByRank<GroupRank, int>(facts.nodes)),
      plans_(std::move(facts)),
      executor_(channels_, window_, history_),
      flight_group_(surroundings.completions.recorder().add_group(
          flight_group(membership_, surroundings.links))),
      enqueued_(membership_.members.size(), membership_.rank),
      messages_(channels_, surroundings.config.chunk_bytes),
      received_(membership_.members.size()),
      endings_(membership_.members.size()),
      agreement_(membership_.rank, membership_.members.size(),
                 [this](GroupRank to, const Vote& vote) { send_vote(to, vote); }),
      reported_(membership_.members.size()) {}

bool GroupState::mark_failed(Failure failure) noexcept {
  std::function<void(const Failure&)> notify;
  {
    std::lock_guard lock(failure_mutex_);
    if (failed_.load(std::memory_order_relaxed)) return false;
    failure_ = std::move(failure);
    failed_.store(true, std::memory_order_release);
    notify = std::move(on_failure_);
  }
  if (notify) notify(failure_);
  return true;
}

void GroupState::watch_failure(std::function<void(const Failure&)> on_failure) {
  std::lock_guard lock(failure_mutex_);
  on_failure_ = std::move(on_failure);
}

bool GroupState::failure_is_watched() const {
  std::lock_guard lock(failure_mutex_);
  return on_failure_ != nullptr;
}

/// Reports the bytes of the group's scratch memory and links to Staging. Called when they may have
/// changed.
void GroupState::weigh() {
  const auto weight =
      static_cast<std::int64_t>(executor_.scratch_bytes() + channels_.buffer_bytes());
  around_.staging.change(std::exchange(weight_, weight), weight);
}

void GroupState::finish(std::shared_ptr<Operation> operation, std::exception_ptr error) noexcept {
  around_.completions.finish(std::move(operation), std::move(error));
}

GroupState::Status GroupState::status(Clock::time_point now, const Heartbeats& heart) const {
  Status status;
  status.last = history_.last();
  if (failed()) status.failure = describe(failure_);
  const OperationList& messages = carrier_ ? carrier_->messages() : messages_.pending();
  const auto count = [](const OperationList& calls) {
    return static_cast<std::size_t>(std::distance(calls.begin(), calls.end()));
  };
  status.more_pending = count(calls_) + count(messages);
  if (!calls_.empty()) {
    const Operation& call = calls_.front();
    status.pending.push_back({call.call, collective_runs(),
                              seconds_between(std::max(call.submitted, collectives_moved_), now),
                              missing(), stuck_on(&heart)});
  }
  if (!messages.empty()) {
    const Operation& oldest = messages.front();
    const GroupRank peer(oldest.call.peer);
    status.pending.push_back({oldest.call, true,
                              seconds_between(std::max(oldest.submitted, last_progress_), now),
                              peer.valid() ? std::vector{peer} : std::vector<GroupRank>(),
                              carrier_ ? "" : ", " + why_late(oldest, &heart)});
  }
  status.more_pending -= status.pending.size();
  const auto missed = failed() ? std::nullopt : enqueued_.missed();
  if (missed) {
    status.pending.push_back({missed->call, true, seconds_between(missed->since, now),
                              missed->members, late_text(missed->members, &heart)});
  }
  return status;
}

}  // namespace mccl::engine
