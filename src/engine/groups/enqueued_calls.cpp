#include "engine/groups/enqueued_calls.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "mccl/error.h"

namespace mccl::engine {

transport::Blob encode(const Announcement& announcement) {
  transport::Blob bytes(2 + sizeof announcement.digest);
  bytes[0] = std::byte{announcement.asks};
  bytes[1] = std::byte{announcement.stopped};
  std::memcpy(&bytes[2], &announcement.digest, sizeof announcement.digest);
  return bytes;
}

Announcement decode_announcement(const transport::Blob& bytes) {
  Announcement announcement;
  if (bytes.size() != 2 + sizeof announcement.digest || bytes[0] > std::byte{1} ||
      bytes[1] > std::byte{1})
    throw CorruptionError("its announcement of a collective on GPU memory is malformed");
  announcement.asks = bytes[0] != std::byte{0};
  announcement.stopped = bytes[1] != std::byte{0};
  std::memcpy(&announcement.digest, &bytes[2], sizeof announcement.digest);
  return announcement;
}

void EnqueuedCalls::reserve() {
  auto history = std::make_unique<CallHistory>();
  const std::lock_guard lock(mutex_);
  if (!history_) history_ = std::move(history);
}

Call EnqueuedCalls::record(Call call, Clock::time_point now, Clock::time_point deadline) {
  const std::lock_guard lock(mutex_);
  call.sequence = ++last_;
  call.enqueued = true;
  history_->started(call, true);
  times_[last_ % kKept] = {now, deadline};
  return call;
}

void EnqueuedCalls::stop() {
  const std::lock_guard lock(mutex_);
  stop_is_news_ |= !std::exchange(stopped_, true);
}

bool EnqueuedCalls::stopped() const {
  const std::lock_guard lock(mutex_);
  return stopped_;
}

std::vector<EnqueuedCalls::News> EnqueuedCalls::take_news() {
  const std::lock_guard lock(mutex_);
  std::vector<News> news;
  if (announced_ == last_ && !stop_is_news_) return news;
  stop_is_news_ = false;
  const std::uint64_t before = std::exchange(announced_, last_);
  const std::uint64_t mark = last_ / CallHistory::kMark * CallHistory::kMark;
  if (mark != last_ && mark > before && !stopped_)
    news.push_back({*history_->find(mark), history_->digest_at(mark)});
  news.push_back(last_ == 0 ? News() : News{history_->last(), history_->digest_at(last_)});
  return news;
}

EnqueuedCalls::News EnqueuedCalls::last() const {
  const std::lock_guard lock(mutex_);
  return last_ == 0 ? News() : News{history_->last(), history_->digest_at(last_)};
}

std::optional<EnqueuedCalls::Difference> EnqueuedCalls::hear(GroupRank member, const News& news,
                                                             Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  Reached& reached = reached_[member];
  reached.heard = now;
  if (news.call.sequence > reached.last.sequence) reached.last = news.call;
  if (stopped_ || last_ == 0) return {};
  const std::optional<Call> own = history_->find(news.call.sequence);
  if (!own) return {};
  if (!own->matches(news.call)) return Difference{*own, false};
  if (history_->digest_at(own->sequence) != news.digest) return Difference{*own, true};
  return {};
}

/// If the times of a collective are not kept, it counts as enqueued at the time of the oldest one
/// whose times are.
std::optional<EnqueuedCalls::Missed> EnqueuedCalls::missed() {
  const std::lock_guard lock(mutex_);
  if (last_ == 0 || stopped_) return {};
  std::uint64_t first = last_;
  for (GroupRank member(0); member < reached_.end_rank(); ++member) {
    if (!(member == self_)) first = std::min(first, reached_[member].last.sequence);
  }
  if (first++ == last_) return {};
  const std::uint64_t oldest = last_ < kKept ? 1 : last_ - kKept + 1;
  if (std::exchange(first_missed_, first) != first)
    times_of_missed_ = times_[std::max(first, oldest) % kKept];
  const Call call = history_->find(first).value_or(*history_->find(std::max(first, oldest)));
  return Missed{call, times_of_missed_.since, times_of_missed_.deadline, members_before(first)};
}

std::optional<std::vector<GroupRank>> EnqueuedCalls::late_for(std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  if (announced_ < number || stopped_) return {};
  return members_before(number);
}

EnqueuedCalls::Reached EnqueuedCalls::reached(GroupRank member) const {
  const std::lock_guard lock(mutex_);
  return reached_[member];
}

/// Called with `mutex_` locked.
std::vector<GroupRank> EnqueuedCalls::members_before(std::uint64_t number) const {
  std::vector<GroupRank> members;
  for (GroupRank member(0); member < reached_.end_rank(); ++member) {
    if (!(member == self_) && reached_[member].last.sequence < number) members.push_back(member);
  }
  return members;
}

}  // namespace mccl::engine
