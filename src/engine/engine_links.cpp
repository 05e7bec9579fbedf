// The part of Engine that makes the links of groups. Whoever needs a link says so ("open"); the
// higher rank of the pair makes it, once both have made the group: it offers memory of its own
// where the two share memory ("share"), which the other takes ("joined") or cannot take
// ("declined"), and dials otherwise. So no link ever waits for a group, and both ends agree on what
// it runs through before either uses it.
#include <fmt/format.h>

#include <algorithm>

#include "engine/engine.h"
#include "mccl/error.h"
#include "transport/shm/link.h"
#include "transport/shm/thrift.h"

namespace mccl::engine {

using rendezvous::LinkKey;
using rendezvous::Purpose;
using transport::shm::ShmLink;
using transport::shm::thrifty;

void Engine::request_links(GroupState& group, Purpose purpose, int member) {
  const int peer = group.members[static_cast<std::size_t>(member)];
  for (int rail = 0; rail < rails(peer); ++rail) {
    tell(peer, ControlKind::open, {group.id, purpose, static_cast<std::uint8_t>(rail)});
  }
}

void Engine::tell(int peer, ControlKind kind, const LinkKey& key) {
  ControlMessage message;
  message.kind = kind;
  message.key = key;
  peers_.send(peer, message);
}

/// The peer needs a link of a group that this rank has.
void Engine::opened(int peer, GroupState& group, const LinkKey& key) {
  const int member = group.rank_of(peer);
  if (key.purpose == Purpose::control || key.rail >= rails(peer)) {
    throw CorruptionError(fmt::format("rank {} asks for a link that cannot be", peer));
  }
  if (group.failed()) return;  // which it is told
  Channel& channel = group.channels.at(key.purpose, member);
  if (peer < rank()) {
    make_link(peer, channel, key);
  } else if (!std::exchange(channel.requested, true)) {
    request_links(group, key.purpose, member);
  }
}

void Engine::make_link(int peer, const Channel& channel, const LinkKey& key) {
  const bool stands = key.rail < channel.lanes.size() && channel.lanes[key.rail] != nullptr;
  if (stands || !making_.emplace(MadeLink{peer, key}, nullptr).second) return;
  if (!neighbour(peer) || !share_link(peer, key)) dial(peer, key);
}

void Engine::dial(int peer, const LinkKey& key) {
  const auto limit = std::chrono::duration<double>(options_.config.connect_timeout);
  mesh_->dial(peer, key, Clock::now() + std::chrono::duration_cast<Clock::duration>(limit));
}

/// Offers a link in this rank's memory; false when it cannot be had, and then tcp serves.
bool Engine::share_link(int peer, const LinkKey& key) {
  std::unique_ptr<ShmLink> link;
  std::string trouble = "no memory is left";
  try {
    const std::size_t ring = thrifty(ShmLink::kUsualRingBytes, ShmLink::kLeastRingBytes, *arena_);
    link = ShmLink::make(*arena_, ring, neighbour(peer)->bell(), fmt::format("rank {}", peer));
  } catch (const Error& error) {
    trouble = error.what();
  }
  if (!link) {
    log_.warn("no link through shared memory to rank {} ({}): tcp is used", peer, trouble);
    return false;
  }
  ControlMessage message;
  message.kind = ControlKind::share;
  message.key = key;
  message.offer.place = link->place();
  peers_.send(peer, message);
  making_[{peer, key}] = std::move(link);
  return true;
}

/// The peer counts this rank as a reader of the range, which it uses again when all have let go.
void Engine::let_go_of(int peer, const transport::shm::RangePlace& place) {
  const rendezvous::Neighbour* other = neighbour(peer);
  if (!other || place.bytes == 0) return;
  try {
    static_cast<void>(other->arena.map(place));
  } catch (const CorruptionError&) {
    throw;
  } catch (const Error& error) {
    log_.debug("memory of rank {} stays counted as read here: {}", peer, error.what());
  }
}

/// The other end of a link lies in the peer's memory. When it cannot be had here, that is no fault
/// of the peer's: the two go on without it.
void Engine::take_shared_link(int peer, GroupState& group, const ControlMessage& share) {
  const rendezvous::Neighbour* other = neighbour(peer);
  if (!other || share.key.purpose == Purpose::control || peer < rank()) {
    throw CorruptionError(fmt::format("rank {} offers a link that cannot be", peer));
  }
  if (group.failed()) return let_go_of(peer, share.offer.place);
  try {
    attach(peer, group, share.key,
           ShmLink::join(other->arena, share.offer.place, other->bell(),
                         fmt::format("rank {}", peer)));
    tell(peer, ControlKind::joined, share.key);
  } catch (const CorruptionError&) {
    throw;
  } catch (const std::exception& error) {
    log_.warn("a link through shared memory to rank {} cannot be had here ({}): tcp is used", peer,
              error.what());
    ControlMessage declined;
    declined.kind = ControlKind::declined;
    declined.key = share.key;
    declined.failure.reason = error.what();
    peers_.send(peer, declined);
  }
}

/// The peer's answer to a share.
void Engine::share_answered(int peer, GroupState& group, const ControlMessage& answer) {
  const auto found = making_.find({peer, answer.key});
  if (found == making_.end() || !found->second) {
    throw CorruptionError(fmt::format("rank {} answers to a link that was not offered", peer));
  }
  if (answer.kind == ControlKind::joined) {
    std::unique_ptr<transport::Link> link = std::move(found->second);
    making_.erase(found);
    if (!group.failed()) attach(peer, group, answer.key, std::move(link));
    return;
  }
  log_.warn("rank {} cannot have a link through shared memory ({}): tcp is used", peer,
            answer.failure.reason);
  found->second.reset();
  dial(peer, answer.key);
}

void Engine::attach(int peer, GroupState& group, const LinkKey& key,
                    std::unique_ptr<transport::Link> link) {
  group.channels.attach(key.purpose, group.rank_of(peer), key.rail,
                        static_cast<std::uint8_t>(rails(peer)), std::move(link));
  weigh(group);
}

/// A dial has ended, or somebody has dialled this rank.
void Engine::handle(rendezvous::MeshEvent& event) {
  const bool dialled_here = event.peer < rank();
  if (dialled_here && making_.erase({event.peer, event.key}) == 0) return;
  GroupState* group = find_group(event.key.group);
  const int member = group ? group->rank_of(event.peer) : -1;
  if (!event.link) {
    log_.warn("no link to rank {}: {}", event.peer, event.reason);
    if (!dialled_here) return;
    // The peer waits for this link, and does not see why it does not come.
    ControlMessage failed;
    failed.kind = ControlKind::declined;
    failed.key = event.key;
    failed.failure.reason = event.reason;
    peers_.send(event.peer, failed);
    if (member >= 0) group->channels.lose(member, event.reason);
  } else if (member >= 0 && !group->failed()) {
    attach(event.peer, *group, event.key, std::move(event.link));
  } else if (!group && unmade_.is_closed(event.key.group)) {
    tell(event.peer, ControlKind::closed, event.key);
  }
}

/// What a peer says of a group; the group is known here.
void Engine::handle_link(int peer, GroupState& group, const ControlMessage& message) {
  switch (message.kind) {
    case ControlKind::open:
      return opened(peer, group, message.key);
    case ControlKind::share:
      return take_shared_link(peer, group, message);
    case ControlKind::joined:
      return share_answered(peer, group, message);
    case ControlKind::declined:
      if (peer < rank()) return share_answered(peer, group, message);
      log_.warn("rank {} could not make a link to this rank: {}", peer, message.failure.reason);
      return group.channels.lose(group.rank_of(peer), message.failure.reason);
    case ControlKind::closed:
      return group.channels.lose(group.rank_of(peer), "it has destroyed this group");
    default:
      return;
  }
}

/// What concerns links that never came about goes with the group.
void Engine::forget_links(const GroupState& group) {
  std::erase_if(making_, [&](const auto& entry) { return entry.first.key.group == group.id; });
}

}  // namespace mccl::engine
