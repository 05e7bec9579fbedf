// How calls end that do not end well: what ranks tell each other, and what is taken back from MPI.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>

#include "backend/mpi/engine.h"
#include "mccl/error.h"

namespace mccl::mpi {
namespace {

/// What a rank has sent before it left may come after the word that it has left.
constexpr std::chrono::milliseconds kForTheLastMessages{200};
/// For the word that MPI is not called any more.
constexpr std::chrono::milliseconds kForTheLastWord{20};
/// For calls of a failed group that have the program's memory: MPI ends those soon that all ranks
/// have begun. Ranks that gather for one have as long, since others may have seen that all are
/// there. Who is in MPI's call has no other way out.
constexpr std::chrono::milliseconds kLastMoment{1000};
constexpr std::chrono::milliseconds kLastMomentOfThreads{10'000};

}  // namespace

void Engine::abort(const std::shared_ptr<GroupState>& group, const std::string& reason) {
  group->fail(Kind::aborted, fmt::format("rank {} aborted the group '{}': {}", group->place.rank,
                                         group->name, reason));
  const std::lock_guard lock(inbox_mutex_);
  failed_.push_back({group, true});
  asked_ = true;
  wake_.notify_all();
}

void Engine::fail(const std::shared_ptr<GroupState>& group, Kind kind, const std::string& reason,
                  bool tell) {
  if (kind != Kind::aborted) trouble_ = true;
  if (!group->fail(kind, reason)) return;
  const std::lock_guard lock(inbox_mutex_);
  failed_.push_back({group, tell});
  asked_ = true;
}

void Engine::send_to(const std::vector<int>& members, const Notice& notice) {
  try {
    for (const int member : members) {
      if (member != world_rank_) notices_->send(notice, member);
    }
  } catch (const std::exception&) {
    trouble_ = true;
  }
}

void Engine::tell(const GroupState& group) noexcept {
  Notice notice;
  notice.what = Notice::What::failed;
  notice.kind = static_cast<std::uint32_t>(group.failure_kind());
  notice.sender = world_rank_;
  notice.group = group.id;
  notice.set_text(group.failure());
  send_to(group.members, notice);
}

void Engine::say_left(const GroupState& group) noexcept {
  Notice notice;
  notice.what = Notice::What::left;
  notice.sender = world_rank_;
  notice.group = group.id;
  notice.made = group.made();
  std::vector<int> there;
  for (std::size_t i = 0; i < group.members.size(); ++i) {
    if (!group.departures[i].left) there.push_back(group.members[i]);
  }
  send_to(there, notice);
}

void Engine::tell_departure(int world_size) noexcept {
  Notice notice;
  notice.what = Notice::What::departed;
  notice.sender = world_rank_;
  std::vector<int> everyone(static_cast<std::size_t>(world_size));
  std::iota(everyone.begin(), everyone.end(), 0);
  send_to(everyone, notice);
}

void Engine::hear(const Notice& notice) {
  if (notice.what == Notice::What::departed) return;  // it has said so in each of its groups
  const auto found = groups_.find(notice.group);
  if (found == groups_.end()) {
    if (expecting_ > 0) early_.push_back(notice);
    return;
  }
  const std::shared_ptr<GroupState> group = found->second.lock();
  if (!group) return;
  if (notice.what == Notice::What::failed) {
    return fail(group, static_cast<Kind>(std::min(notice.kind, 4U)), notice.said(), false);
  }
  const auto member = std::ranges::find(group->members, notice.sender);
  if (member == group->members.end()) return;
  auto& departure = group->departures[static_cast<std::size_t>(member - group->members.begin())];
  departure = {true, notice.made, Clock::now()};
  group->someone_left = true;
}

int Engine::absentee(const Call& call, Clock::time_point now) {
  const GroupState& group = *call.group;
  if (!group.someone_left) return -1;
  const auto& departures = group.departures;
  if (is_collective(call.request().collective)) {
    for (std::size_t i = 0; i < departures.size(); ++i) {
      if (departures[i].left && departures[i].made < call.number) return static_cast<int>(i);
    }
    return -1;
  }
  const auto gone = [&](std::size_t i) {
    return departures[i].left && now - departures[i].seen > kForTheLastMessages;
  };
  if (call.request().peer >= 0) {
    return gone(static_cast<std::size_t>(call.request().peer)) ? call.request().peer : -1;
  }
  int last = -1;
  for (std::size_t i = 0; i < departures.size(); ++i) {
    if (static_cast<int>(i) == group.place.rank) continue;
    if (!gone(i)) return -1;
    last = static_cast<int>(i);
  }
  return last;
}

std::exception_ptr Engine::error_of(const Call& call) {
  const std::string reason = call.group->failure();
  const std::string place =
      fmt::format("{} on rank {}", call.description(), call.group->place.rank);
  return exception_of(call.group->failure_kind(),
                      reason.starts_with(place) ? reason : fmt::format("{}: {}", place, reason));
}

/// Ends what is under way in groups that have failed.
void Engine::sweep() {
  std::vector<Failed> failed;
  {
    const std::lock_guard lock(inbox_mutex_);
    failed.swap(failed_);
    asked_ = !errands_.empty();
  }
  if (failed.empty()) return;
  std::vector<std::shared_ptr<Call>> ended;
  for (const Failed& each : failed) {
    if (each.tell && !is_over()) tell(*each.group);
    for (auto& call : std::exchange(each.group->waiting, {})) ended.push_back(std::move(call));
  }
  for (std::size_t i = 0; i < active_.size();) {
    if (!active_[i]->group->failed() || !take_back(active_[i])) {
      ++i;
      continue;
    }
    ended.push_back(std::move(active_[i]));
    active_[i] = std::move(active_.back());
    active_.pop_back();
  }
  for (const auto& call : ended) finish(call, error_of(*call));
}

bool Engine::gathers(const Call& call) { return call.group->bulk.get() == &call && !call.working; }

bool Engine::take_back(const std::shared_ptr<Call>& call) {
  if (is_over() || !call->flight) return true;
  const Clock::time_point now = Clock::now();
  const bool is_first = call->last_moment == Clock::time_point::max();
  if (is_first) call->last_moment = now + (call->working ? kLastMomentOfThreads : kLastMoment);
  if (call->working) return false;
  bool ended = false;
  try {
    if (is_first && !call->cancelling) call->flight->cancel();
    ended = call->flight->test();
    if (ended && gathers(*call)) {
      hand_to_worker(call);
      call->last_moment = now + kLastMomentOfThreads;
      return false;
    }
  } catch (const std::exception&) {  // that request has ended, and others of the call may not have
  }
  if (ended) return true;
  if (call->flight->holds_caller() || (gathers(*call) && now < call->last_moment)) return false;
  --call->group->under_way;
  lost_.push_back({call->group, std::move(call->flight)});
  return true;
}

/// Of a group that has failed. Whether the call has ended.
bool Engine::end_failed(const std::shared_ptr<Call>& call) {
  if (!take_back(call)) return false;
  finish(call, error_of(*call));
  return true;
}

/// MPI may write into memory that the program is about to use again, for as long as anybody calls
/// it. So nobody does any more.
void Engine::end_for_good(const std::string& reason) {
  if (is_over()) return;
  const std::string text = fmt::format(
      "MPI is not called any more in this process, since it cannot take back a call that was given "
      "up while it had memory of the program's: {}",
      reason);
  for (const auto& [id, weak] : groups_) {
    const std::shared_ptr<GroupState> group = weak.lock();
    if (!group) continue;
    if (group->fail(Kind::error, text)) tell(*group);
    for (auto& call : std::exchange(group->waiting, {})) active_.push_back(std::move(call));
  }
  const Clock::time_point limit = Clock::now() + kForTheLastWord;
  try {
    while (notices_->sending() && Clock::now() < limit) notices_->settle();
  } catch (const std::exception&) {
    trouble_ = true;
  }
  {
    const std::lock_guard lock(inbox_mutex_);
    reason_over_ = text;
  }
  over_.store(true, std::memory_order_release);
  end_what_is_left();
}

void Engine::end_what_is_left() {
  for (const auto& call : active_) {
    call->group->fail(Kind::error, over());
    if (call->flight && !call->working) {
      --call->group->under_way;
      lost_.push_back({call->group, std::move(call->flight)});
    }
    finish(call, error_of(*call));
  }
  active_.clear();
}

void Engine::abandon() {
  callers_drive_ = true;  // there is no other thread
  reason_over_ = "this process is a child by fork() of one that uses MPI, which no child can";
  over_.store(true, std::memory_order_release);
  after_fork();
}

void Engine::free_comms() {
  for (const Handle comm : std::exchange(unused_, {})) library_->free_comm(comm);
}

}  // namespace mccl::mpi
