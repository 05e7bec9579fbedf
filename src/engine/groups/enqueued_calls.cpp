#include "engine/groups/enqueued_calls.h"

#include <algorithm>
#include <utility>

namespace mccl::engine {

Call EnqueuedCalls::record(Call call, Clock::time_point now, Clock::time_point deadline) {
  const std::lock_guard lock(mutex_);
  call.sequence = ++last_;
  kept_[last_ % kKept] = {call, now, deadline};
  return call;
}

bool EnqueuedCalls::has_news() const {
  const std::lock_guard lock(mutex_);
  return last_ > announced_;
}

Call EnqueuedCalls::announce() {
  const std::lock_guard lock(mutex_);
  announced_ = last_;
  return last_ == 0 ? Call() : kept_[last_ % kKept].call;
}

std::optional<Call> EnqueuedCalls::hear(GroupRank member, const Call& last) {
  const std::lock_guard lock(mutex_);
  reached_[member] = last;
  if (last.sequence == 0 || last.sequence > last_) return {};
  const Call& own = kept_[last.sequence % kKept].call;
  return own.sequence == last.sequence && !own.matches(last) ? std::optional(own) : std::nullopt;
}

/// A collective that is no longer kept counts as enqueued at the time of the oldest one that is.
std::optional<EnqueuedCalls::Missed> EnqueuedCalls::missed() const {
  const std::lock_guard lock(mutex_);
  if (last_ == 0) return {};
  std::uint64_t first = last_;
  for (GroupRank member(0); member < reached_.end_rank(); ++member) {
    if (!(member == self_)) first = std::min(first, reached_[member].sequence);
  }
  if (first++ == last_) return {};
  const std::uint64_t oldest = last_ < kKept ? 1 : last_ - kKept + 1;
  const Kept& kept = kept_[std::max(first, oldest) % kKept];
  return Missed{kept.call, kept.since, kept.deadline, members_before(kept.call.sequence)};
}

std::vector<GroupRank> EnqueuedCalls::late_for(std::uint64_t sequence) const {
  const std::lock_guard lock(mutex_);
  return announced_ < sequence ? std::vector<GroupRank>() : members_before(sequence);
}

Call EnqueuedCalls::last_of(GroupRank member) const {
  const std::lock_guard lock(mutex_);
  return reached_[member];
}

/// Called with `mutex_` locked.
std::vector<GroupRank> EnqueuedCalls::members_before(std::uint64_t sequence) const {
  std::vector<GroupRank> members;
  for (GroupRank member(0); member < reached_.end_rank(); ++member) {
    if (!(member == self_) && reached_[member].sequence < sequence) members.push_back(member);
  }
  return members;
}

}  // namespace mccl::engine
