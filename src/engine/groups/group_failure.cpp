// The part of GroupState that ends things.
#include <fmt/format.h>

#include <new>
#include <utility>

#include "engine/groups/group_state.h"

namespace mccl::engine {

void GroupState::fail(Failure failure) noexcept {
  if (mark_failed(std::move(failure))) log_failure();
  settle_failure();
}

void GroupState::log_failure() const noexcept {
  if (!around_.log.enabled(LogLevel::info)) return;
  try {
    around_.log.info("group '{}' failed: {}", membership_.name, describe(failure_));
  } catch (const std::bad_alloc&) {
    // The errors of its calls say it.
  }
}

/// Needs no memory where there is none: messages go straight to the links, calls are moved between
/// lists, and the words of their errors are left out.
void GroupState::settle_failure() noexcept {
  announce_failure();
  OperationList ended = collectives_.drop_all();
  finish_messages();
  ended.append(messages_.drop_all());
  channels_.close();  // before callers may use their memory again
  while (!ended.empty()) {
    std::shared_ptr<Operation> operation = ended.pop_front();
    const std::exception_ptr error =
        error_of(failure_, operation->call, membership_.rank, "failed");
    finish(std::move(operation), error);
  }
}

/// Once, to all other members.
void GroupState::announce_failure() noexcept {
  if (failure_announced_) return;
  ControlMessage message;
  message.kind = ControlKind::abort;
  message.key.group = id();
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
  if (dead_.valid() || around_.peers.has_left(peer)) return;
  dead_ = member;
  lost_at_ = Clock::now();
}

/// To each member that may have messages of this rank to receive.
void GroupState::announce_end() noexcept {
  ControlMessage message;
  message.kind = ControlKind::ending;
  message.key.group = id();
  membership_.for_each_other([&](WorldRank peer) {
    const GroupRank member = membership_.rank_of(peer);
    const Channel& channel = channels_.at(transport::Purpose::point_to_point, member);
    if (!channel.lanes.empty()) around_.peers.send(peer, message);
  });
}

std::vector<DepartingLink> GroupState::end(const std::string& reason) {
  announce_end();
  std::vector<DepartingLink> links = channels_.take_links();
  mark_failed({FailureKind::aborted, reason});
  failure_announced_ = true;  // the peers may still be using theirs, and are told if not
  settle_failure();
  collectives_.release();
  for (const auto& [member, place] : window_.release()) {
    const node::Neighbour* neighbour = around_.memory.neighbour(membership_.members[member]);
    if (neighbour) node::let_go_of(*neighbour, place);  // checked when it was offered
  }
  around_.links.forget(id());
  weigh();
  return links;
}

}  // namespace mccl::engine
