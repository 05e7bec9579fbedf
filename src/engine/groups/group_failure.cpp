// The part of GroupState that ends calls and groups.
#include <fmt/format.h>

#include <new>
#include <thread>
#include <utility>

#include "engine/groups/group_state.h"
#include "mccl/error.h"

namespace mccl::engine {
namespace {

constexpr std::chrono::microseconds kBetweenAttemptsToLetGo{100};

}  // namespace

void GroupState::fail(Failure failure) noexcept {
  if (mark_failed(std::move(failure))) log_failure();
  settle_failure();
}

void GroupState::log_failure() const noexcept {
  if (!around_.log.enabled(LogLevel::info)) return;
  try {
    around_.log.about(membership_.name)
        .info("group '{}' failed: {}", membership_.name, describe(failure_));
  } catch (const std::bad_alloc&) {
    // Memory has run out, so nothing is logged. The errors of the calls contain the text as well.
  }
}

/// Ends all calls of a failed group. Needs no free memory: control messages use memory that each
/// connection has reserved, and calls are relinked from list to list without a copy. If memory has
/// run out, the error of the calls is a preallocated exception without text.
void GroupState::settle_failure() noexcept {
  announce_failure();
  // Calls end only once the carrier no longer accesses their memory. Until then, the driver calls
  // this function again in each pass.
  if (carrier_ && !carrier_->let_go(failure_.reason, Clock::now())) return;
  if (!calls_.empty()) note_missing(calls_.front());
  end_collective();
  OperationList ended = std::exchange(calls_, {});
  finish_messages();
  ended.append(carrier_ ? carrier_->drop_messages() : messages_.drop_all());
  channels_.close();  // must precede the end of calls, after which callers may reuse their memory
  while (!ended.empty()) end_with(failure_, ended.pop_front());
  if (!std::exchange(failure_recorded_, true) && around_.on_failure) around_.on_failure();
}

/// Ends the call with the error that error_of() returns.
void GroupState::end_with(const Failure& failure, std::shared_ptr<Operation> operation,
                          std::string_view verdict) noexcept {
  const std::exception_ptr error = error_of(failure, operation->call, membership_.rank, verdict);
  finish(std::move(operation), error);
}

/// Announces the failure once to all other members.
void GroupState::announce_failure() noexcept {
  if (failure_announced_) return;
  ControlMessage message = about_group(ControlKind::abort);
  try {
    message.failure = failure_;
  } catch (const std::bad_alloc& error) {
    message.failure = failure_of(error);
  }
  if (failure_.call) message.call = is_collective(*failure_.call) ? *failure_.call : a_message;
  membership_.for_each_other([&](WorldRank peer) { around_.peers.send(peer, message); });
  failure_announced_ = true;
}

void GroupState::lose(WorldRank peer, const std::string& reason, transport::Loss loss) {
  const GroupRank member = membership_.rank_of(peer);
  if (!member.valid()) return;
  channels_.lose(member, reason, loss);
  note_absence(member, around_.peers.has_ended(peer) ? Standing::ended : Standing::silent);
  if (dead_.valid() || around_.peers.has_left(peer)) return;
  dead_ = member;
  fell_silent_ = loss == transport::Loss::silence;
  lost_at_ = Clock::now();
}

/// Announces to each other member that this rank has destroyed the group. A member may still have
/// to read messages of this rank, or may wait in a collective that this rank never calls.
void GroupState::announce_end(std::string_view reason) noexcept {
  ControlMessage message = about_group(ControlKind::ending);
  message.call = history_.last();
  message.failure = aborted("{}", reason);
  membership_.for_each_other([&](WorldRank peer) {
    const GroupRank member = membership_.rank_of(peer);
    const bool messages = !channels_.at(transport::Purpose::point_to_point, member).lanes.empty();
    message.key.purpose =
        messages ? transport::Purpose::point_to_point : transport::Purpose::collective;
    around_.peers.send(peer, message);
  });
}

/// If the member has announced that it destroyed the group, ends only the messages that need this
/// member, and returns true. Messages that the member has sent may still be received. Otherwise, or
/// if a link still reads the memory of a send, returns false.
bool GroupState::give_up_messages(const MemberGone& gone) noexcept {
  if (!endings_[gone.member()]) return false;
  std::optional<OperationList> ended = messages_.give_up(gone.member(), gone.whole());
  if (!ended) return false;
  const Failure failure = failure_of(gone);
  while (!ended->empty()) end_with(failure, ended->pop_front());
  return true;
}

DepartingLinks GroupState::end(std::string_view reason, std::string_view announced) noexcept {
  if (failure_heard_) {
    // This rank announces the failure, not the end of its group: members that do not know of the
    // failure yet must not mistake the end for its cause.
    failure_announced_ = false;
    announce_failure();
  } else {
    announce_enqueued();
    announce_end(announced);
  }
  DepartingLinks links = channels_.take_links();
  const bool whole = !failed() && idle();
  // The end of a group is not a failure, so on_failure() must not be called for it.
  if (mark_failed(aborted("{}", reason))) failure_recorded_ = true;
  failure_announced_ = true;  // prevents a second announcement by settle_failure()
  while (carrier_ && !carrier_->let_go(failure_.reason, Clock::now()))
    std::this_thread::sleep_for(kBetweenAttemptsToLetGo);
  settle_failure();
  end_search(error_of(failure_, {}, membership_.rank, "failed"));
  if (carrier_) carrier_->close(whole);
  release_plans();
  release_window();
  around_.links.forget(id());
  weigh();
  return links;
}

void GroupState::release_window() noexcept {
  window_.release([this](GroupRank member, const node::RangePlace& place) {
    const node::Neighbour* neighbour = around_.memory.neighbour(membership_.members[member]);
    try {
      if (neighbour) neighbour->arena.let_go_of(place);
    } catch (const CorruptionError&) {
      // The range was valid when the peer offered it, so the peer has damaged its arena (shared
      // memory) since then. The range stays in use, and the peer cannot reuse its memory.
    }
  });
}

}  // namespace mccl::engine
