// The half of Engine beside the data: control messages, peers that are lost, failures, time.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/engine.h"
#include "mccl/error.h"

namespace mccl::engine {
namespace {

/// How often calls are compared with their deadlines.
constexpr std::chrono::milliseconds kWatch{10};
/// A call that does not move for so long asks the peers what they are doing.
constexpr std::chrono::seconds kProbeAfter{1};

}  // namespace

void Engine::look_beside(Clock::time_point now) {
  if (now >= next_housekeeping_) housekeeping(now);
  if (now >= next_watch_) keep_time(now);
}

void Engine::housekeeping(Clock::time_point now) {
  next_housekeeping_ = now + between_looks_;
  peers_.flush();
  peers_.receive(
      [this](int peer, const ControlMessage& message) { handle(peer, message); },
      [this](int peer, const std::string& reason) { lose(peer, reason, Channels::Loss::told); });
  if (!mesh_) return;
  std::vector<rendezvous::MeshEvent> events;
  mesh_->progress(events);
  for (rendezvous::MeshEvent& event : events) handle(event);
}

void Engine::keep_time(Clock::time_point now) {
  next_watch_ = now + kWatch;
  if (mesh_ && now >= liveness_.next_beat()) {
    housekeeping(now);  // who has said something is not silent
    beat(now);
  }
  departing_.sweep(now);
  for (const std::shared_ptr<GroupState>& group : active_) watch_time(*group, now);
}

/// Neighbours see this process's heart beat in its memory; the others are sent a word.
void Engine::beat(Clock::time_point now) {
  if (arena_) arena_->header().beats.fetch_add(1, std::memory_order_relaxed);
  ControlMessage heartbeat;
  heartbeat.kind = ControlKind::heartbeat;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    const rendezvous::Neighbour* near = neighbour(peer);
    if (!near) {
      peers_.send(peer, heartbeat);
      continue;
    }
    std::uint64_t& seen = beats_seen_[static_cast<std::size_t>(peer)];
    const std::uint64_t beats = near->arena.header().beats.load(std::memory_order_relaxed);
    if (std::exchange(seen, beats) != beats) liveness_.heard(peer);
  }
  release_idle(now);
  for (const int peer : liveness_.beat(now)) {
    if (!peers_.connected(peer)) continue;
    const std::string reason = fmt::format(
        "no word has come from it for {:.3g} s (MCCL_LIVENESS_INTERVAL): it is stopped, or its "
        "host cannot be reached",
        silence_s_);
    log_.warn("rank {} is given up: {}", peer, reason);
    peers_.give_up(peer, reason);
    lose(peer, reason, Channels::Loss::silence);
  }
}

GroupState* Engine::find_group(std::uint64_t id) {
  const auto found = groups_.find(id);
  return found == groups_.end() ? nullptr : found->second.get();
}

void Engine::handle(int peer, const ControlMessage& message) {
  if (!neighbour(peer)) liveness_.heard(peer);
  if (message.kind == ControlKind::heartbeat) return;
  GroupState* group = find_group(message.key.group);
  if (!group) return handle_of_unmade(peer, message);
  if (group->rank_of(peer) < 0) {
    throw CorruptionError(
        fmt::format("rank {} speaks of group '{}', in which it is not", peer, group->name));
  }
  try {
    handle_of_group(peer, *group, message);
  } catch (const CorruptionError&) {
    throw;
  } catch (const std::exception& error) {
    // Not the peer's fault, so neither of the two takes the other for dead.
    fail(*group, {FailureKind::aborted,
                  fmt::format("rank {} cannot go on: {}", group->rank, error.what())});
  }
}

void Engine::handle_of_group(int peer, GroupState& group, const ControlMessage& message) {
  const int member = group.rank_of(peer);
  switch (message.kind) {
    case ControlKind::abort:
      group.failure_announced = true;  // by the peer, to everyone
      return fail(group, message.failure);
    case ControlKind::probe:
      return answer_probe(peer, group, message.call);
    case ControlKind::status:
      group.peer_status[static_cast<std::size_t>(member)] =
          message.call.sequence == 0 ? "has called nothing here yet"
                                     : "is in or after " + describe(message.call);
      return;
    case ControlKind::window:
      if (!group.window.take(member, message.offer)) let_go_of(peer, message.offer.place);
      return;
    default:
      return handle_link(peer, group, message);
  }
}

/// A group that this rank has not made yet, or has closed.
void Engine::handle_of_unmade(int peer, const ControlMessage& message) {
  switch (message.kind) {
    case ControlKind::open:
    case ControlKind::window:
    case ControlKind::abort:
    case ControlKind::probe:
      break;
    case ControlKind::share:
      return let_go_of(peer, message.offer.place);
    default:
      return;  // an answer that comes too late
  }
  if (unmade_.is_closed(message.key.group)) {
    if (message.kind == ControlKind::window) let_go_of(peer, message.offer.place);
    if (message.kind != ControlKind::abort) tell(peer, ControlKind::closed, message.key);
  } else if (message.kind != ControlKind::probe) {
    unmade_.keep(peer, message);
  }
}

/// A peer is stuck in `call`: either this rank called something else there, or it tells how far it
/// is.
void Engine::answer_probe(int peer, GroupState& group, const Call& call) {
  const std::optional<Call> mine = group.recorder.find(call.sequence);
  if (mine && !mine->matches(call)) {
    fail(group,
         {FailureKind::mismatch,
          fmt::format("{} calls {} where rank {} calls {}", group.name_of_rank(group.rank_of(peer)),
                      describe_unlike(call, *mine), group.rank, describe(*mine))});
    return;
  }
  ControlMessage answer;
  answer.kind = ControlKind::status;
  answer.key.group = group.id;
  answer.call = group.recorder.last();
  peers_.send(peer, answer);
}

void Engine::lose(int peer, const std::string& reason, Channels::Loss loss) {
  log_.info("rank {}: {}", peer, reason);
  liveness_.forget(peer);
  for (const auto& [id, group] : groups_) {
    const int member = group->rank_of(peer);
    if (member >= 0) group->channels.lose(member, reason, loss);
  }
}

/// What has been said of a group before this rank made it.
void Engine::catch_up(GroupState& group) {
  for (int member = 0; member < group.size(); ++member) {
    const int peer = group.members[static_cast<std::size_t>(member)];
    if (!peers_.lost(peer).empty()) group.channels.lose(member, peers_.lost(peer));
  }
  for (const auto& [peer, message] : unmade_.take(group.id)) {
    try {
      handle(peer, message);
    } catch (const CorruptionError& garbage) {
      fail(group, {FailureKind::corruption, fmt::format("rank {}: {}", peer, garbage.what())});
    }
  }
}

void Engine::fail(GroupState& group, const Failure& failure) {
  if (group.fail(failure)) log_.info("group '{}' failed: {}", group.name, failure.reason);
  settle_failure(group);
}

/// Tells the other members, once, and ends everything pending.
void Engine::settle_failure(GroupState& group) {
  const Failure failure = group.failure();
  if (!std::exchange(group.failure_announced, true)) {
    ControlMessage message;
    message.kind = ControlKind::abort;
    message.key.group = group.id;
    message.failure = failure;
    for (const int member : group.members) {
      if (member != rank()) peers_.send(member, message);
    }
  }
  const auto end = [&](const std::shared_ptr<Operation>& operation) {
    finish(operation, exception_of(failure.kind, fmt::format("{} on rank {} failed: {}",
                                                             describe(operation->call), group.rank,
                                                             failure.reason)));
  };
  if (group.executor.running()) group.executor.end();
  for (const auto& operation : std::exchange(group.queue, {})) end(operation);
  finish_messages(group);
  for (const auto& operation : group.messages.drop_all()) end(operation);
  group.channels.close_all();
}

void Engine::watch_time(GroupState& group, Clock::time_point now) {
  if (group.failed()) return;
  for (const std::shared_ptr<Operation>& operation : group.messages.pending()) {
    if (now < operation->deadline) continue;
    const std::string text =
        fmt::format("{} on rank {} timed out after {:.3g} s", describe(operation->call), group.rank,
                    seconds_between(operation->submitted, now));
    if (group.messages.cancel(*operation)) {
      finish(operation, exception_of(FailureKind::timeout, text + ": no message came"));
    } else {
      fail(group, {FailureKind::timeout, text + ": its receiver has not taken it"});
      return;
    }
  }
  const auto late =
      std::find_if(group.queue.begin(), group.queue.end(),
                   [now](const auto& operation) { return now >= operation->deadline; });
  if (late != group.queue.end()) {
    fail(group,
         {FailureKind::timeout, fmt::format("rank {} timed out after {:.3g} s in {}{}", group.rank,
                                            seconds_between((*late)->submitted, now),
                                            describe((*late)->call), stuck_on(group))});
    return;
  }
  if (now - group.last_progress >= kProbeAfter && now >= group.next_probe) probe(group, now);
}

/// What the others are doing; of one that has destroyed the group it comes out that it will not
/// come.
void Engine::probe(GroupState& group, Clock::time_point now) {
  group.next_probe = now + kProbeAfter;
  ControlMessage probe;
  probe.kind = ControlKind::probe;
  probe.key.group = group.id;
  if (!group.queue.empty()) probe.call = group.queue.front()->call;
  for (const int member : group.members) {
    if (member != rank()) peers_.send(member, probe);
  }
}

/// ", waiting for rank 2 (is in or after all_reduce #11)".
std::string Engine::stuck_on(const GroupState& group) const {
  std::string text;
  const bool meets = !group.executor.running() && group.window.offered();
  for (const int peer : meets ? group.window.missing_members() : group.executor.waiting_for()) {
    const std::string& status = group.peer_status[static_cast<std::size_t>(peer)];
    text += fmt::format("{} {}{}", text.empty() ? ", waiting for" : ",", group.name_of_rank(peer),
                        status.empty() ? "" : " (which " + status + ")");
  }
  return text;
}

}  // namespace mccl::engine
