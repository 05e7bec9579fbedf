// The part of GroupState that ends things.
#include <utility>

#include "engine/groups/group_state.h"

namespace mccl::engine {

void GroupState::fail(const Failure& failure) {
  if (mark_failed(failure)) {
    around_.log.info("group '{}' failed: {}", membership_.name, describe(failure));
  }
  settle_failure();
}

void GroupState::settle_failure() {
  const Failure why = failure();
  if (!std::exchange(failure_announced_, true)) {
    ControlMessage message;
    message.kind = ControlKind::abort;
    message.key.group = id();
    message.failure = why;
    if (why.call) message.call = is_collective(*why.call) ? *why.call : a_message;
    membership_.for_each_other([&](WorldRank peer) { around_.peers.send(peer, message); });
  }
  const CollectiveQueue::Calls collectives = collectives_.drop_all();
  finish_messages();
  const Messages::Finished messages = messages_.drop_all();
  channels_.close();  // before callers may use their memory again
  const auto end = [&](const std::shared_ptr<Operation>& operation) {
    finish(operation,
           exception_of(why.kind, describe(why, operation->call, membership_.rank, "failed")));
  };
  for (const auto& operation : collectives) end(operation);
  for (const auto& operation : messages) end(operation);
}

void GroupState::lose(WorldRank peer, const std::string& reason, transport::Loss loss) {
  const GroupRank member = membership_.rank_of(peer);
  if (member.valid()) channels_.lose(member, reason, loss);
}

std::vector<std::unique_ptr<transport::Link>> GroupState::end(const std::string& reason) {
  std::vector<std::unique_ptr<transport::Link>> links = channels_.take_links();
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
