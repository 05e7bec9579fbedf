// The half of Engine beside the data: control messages, links that come and go, failures, time.
#include <fmt/format.h>

#include <algorithm>

#include "engine/engine.h"
#include "mccl/error.h"

namespace mccl::engine {
namespace {

using rendezvous::LinkKey;
using rendezvous::Purpose;

/// How often the driver looks beside the data while it is busy with data.
constexpr std::chrono::milliseconds kHousekeeping{1};
/// How often calls are compared with their deadlines.
constexpr std::chrono::milliseconds kWatch{10};
/// A call that does not move for so long asks the peers what they are doing.
constexpr std::chrono::seconds kProbeAfter{1};
/// Groups that a peer may use before this rank has made them.
constexpr std::size_t kMostEarlyGroups = 1024;

}  // namespace

void Engine::housekeeping(Clock::time_point now) {
  next_housekeeping_ = now + kHousekeeping;
  peers_.flush();
  peers_.receive([this](int peer, const ControlMessage& message) { handle(peer, message); },
                 [this](int peer, const std::string& reason) { lose(peer, reason); });
  if (mesh_) {
    std::vector<rendezvous::MeshEvent> events;
    mesh_->progress(events);
    for (rendezvous::MeshEvent& event : events) handle(event);
  }
  departing_.sweep(now);
  if (now < next_watch_) return;
  next_watch_ = now + kWatch;
  for (const std::shared_ptr<GroupState>& group : active_) watch_time(*group, now);
}

GroupState* Engine::find_group(std::uint64_t id) {
  const auto found = groups_.find(id);
  return found == groups_.end() ? nullptr : found->second.get();
}

void Engine::handle(int peer, const ControlMessage& message) {
  GroupState* group = find_group(message.key.group);
  switch (message.kind) {
    case ControlKind::open:
      dial(peer, message.key);
      return;
    case ControlKind::abort:
      if (group) {
        group->failure_announced = true;  // by the peer, to everyone
        fail(*group, message.failure);
      } else if (early_.size() < kMostEarlyGroups) {
        early_[message.key.group].failures.emplace_back(peer, message.failure);
      }
      return;
    case ControlKind::probe:
      if (group && group->rank_of(peer) >= 0) answer_probe(peer, *group, message.call);
      return;
    case ControlKind::status:
      if (group && group->rank_of(peer) >= 0) {
        group->peer_status[static_cast<std::size_t>(group->rank_of(peer))] =
            message.call.sequence == 0 ? "has called nothing here yet"
                                       : "is in or after " + describe(message.call);
      }
      return;
    case ControlKind::share:
      take_shared_link(peer, message.key, message.offer.place);
      return;
    case ControlKind::window:
      if (group && group->rank_of(peer) >= 0) {
        group->window.take(group->rank_of(peer), message.offer);
      } else if (!group && early_.size() < kMostEarlyGroups) {
        early_[message.key.group].offers.push_back({peer, message.offer});
      }
      return;
    case ControlKind::goodbye:
      return;
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

void Engine::handle(rendezvous::MeshEvent& event) {
  dialing_.erase(
      {event.peer, event.key.group, static_cast<std::uint8_t>(event.key.purpose), event.key.rail});
  GroupState* group = find_group(event.key.group);
  const int member = group ? group->rank_of(event.peer) : -1;
  if (!event.link) {
    log_.warn("no link to rank {}: {}", event.peer, event.reason);
    if (member >= 0) group->channels.lose(member, event.reason);
  } else if (member >= 0) {
    staging_changed_ = true;
    group->channels.attach(event.key.purpose, member, event.key.rail,
                           static_cast<std::uint8_t>(rails(event.peer)), std::move(event.link));
  } else if (!group && event.key.group != 0 && early_.size() < kMostEarlyGroups) {
    early_[event.key.group].links.push_back({event.peer, event.key, std::move(event.link)});
  }
}

void Engine::lose(int peer, const std::string& reason) {
  log_.info("rank {}: {}", peer, reason);
  for (const auto& [id, group] : groups_) {
    const int member = group->rank_of(peer);
    if (member >= 0) group->channels.lose(member, reason);
  }
}

void Engine::request_links(GroupState& group, Purpose purpose, int member) {
  const int peer = group.members[static_cast<std::size_t>(member)];
  for (int rail = 0; rail < rails(peer); ++rail) {
    const LinkKey key{group.id, purpose, static_cast<std::uint8_t>(rail)};
    if (peer < rank()) {
      dial(peer, key);
    } else {
      ControlMessage open;
      open.kind = ControlKind::open;
      open.key = key;
      peers_.send(peer, open);
    }
  }
}

void Engine::dial(int peer, const LinkKey& key) {
  if (peer >= rank() || key.purpose == Purpose::control || key.rail >= rails(peer)) return;
  const DialKey dial_key{peer, key.group, static_cast<std::uint8_t>(key.purpose), key.rail};
  if (GroupState* group = find_group(key.group)) {
    const int member = group->rank_of(peer);
    if (member < 0) return;
    Channel& channel = group->channels.at(key.purpose, member);
    if (channel.connected()) return;
    channel.requested = true;
  } else {
    const auto early = early_.find(key.group);
    const bool known =
        early != early_.end() &&
        std::any_of(early->second.links.begin(), early->second.links.end(),
                    [&](const auto& entry) { return entry.peer == peer && entry.key == key; });
    if (known || early_.size() >= kMostEarlyGroups) return;
  }
  if (!dialing_.insert(dial_key).second) return;
  if (neighbour(peer) && share_link(peer, key)) return;
  const auto limit = std::chrono::duration<double>(options_.config.connect_timeout);
  mesh_->dial(peer, key, Clock::now() + std::chrono::duration_cast<Clock::duration>(limit));
}

void Engine::adopt_early(GroupState& group) {
  for (int member = 0; member < group.size(); ++member) {
    const int peer = group.members[static_cast<std::size_t>(member)];
    if (!peers_.lost(peer).empty()) group.channels.lose(member, peers_.lost(peer));
  }
  const auto found = early_.find(group.id);
  if (found == early_.end()) return;
  for (EarlyLink& early : found->second.links) {
    const int member = group.rank_of(early.peer);
    if (member < 0) continue;
    staging_changed_ = true;
    group.channels.attach(early.key.purpose, member, early.key.rail,
                          static_cast<std::uint8_t>(rails(early.peer)), std::move(early.link));
  }
  for (const EarlyOffer& early : found->second.offers) {
    if (group.rank_of(early.peer) >= 0) group.window.take(group.rank_of(early.peer), early.offer);
  }
  for (const auto& [peer, failure] : found->second.failures) {
    if (group.rank_of(peer) < 0) continue;
    group.failure_announced = true;
    fail(group, failure);
  }
  early_.erase(found);
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
  if (group.queue.empty()) return;
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
  if (now - group.last_progress < kProbeAfter || now < group.next_probe) return;
  group.next_probe = now + kProbeAfter;
  ControlMessage probe;
  probe.kind = ControlKind::probe;
  probe.key.group = group.id;
  probe.call = group.queue.front()->call;
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
