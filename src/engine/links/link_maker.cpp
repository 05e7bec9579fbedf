#include "engine/links/link_maker.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "mccl/error.h"

namespace mccl::engine {

using transport::LinkEvent;
using transport::LinkKey;
using transport::Making;
using transport::Purpose;

LinkMaker::LinkMaker(WorldRank rank, Transports transports, Clock::duration patience, Peers& peers,
                     Find find, const Log& log, Made made)
    : rank_(rank),
      transports_(std::move(transports)),
      patience_(patience),
      peers_(peers),
      find_(std::move(find)),
      log_(log),
      on_made_(std::move(made)) {}

LinkMaker::Place LinkMaker::next(WorldRank peer, Place from) const {
  while (from < transports_.size() && !transports_[from]->reaches(peer)) ++from;
  return from;
}

/// Returns the number of rails (parallel links) to the peer. It is that of the first transport that
/// reaches the peer, even for links that another transport makes.
int LinkMaker::rails(WorldRank peer) const {
  const Place first = next(peer, 0);
  return first < transports_.size() ? transports_[first]->rails(peer) : 1;
}

std::string LinkMaker::describe(WorldRank peer) const {
  const Place first = next(peer, 0);
  return first < transports_.size() ? transports_[first]->describe(peer)
                                    : "no transport reaches it";
}

std::string LinkMaker::transport_to(WorldRank peer) const {
  const Place first = next(peer, 0);
  return first < transports_.size() ? std::string(transports_[first]->name()) : std::string();
}

std::vector<std::string> LinkMaker::equal_ways(WorldRank peer) const {
  const Place first = next(peer, 0);
  return first < transports_.size() ? transports_[first]->equal_ways(peer)
                                    : std::vector<std::string>{""};
}

void LinkMaker::take_way(WorldRank peer, std::size_t way) {
  const Place first = next(peer, 0);
  if (first < transports_.size()) transports_[first]->take_way(peer, way);
}

void LinkMaker::send(WorldRank peer, ControlKind kind, const LinkKey& key) {
  peers_.send(peer, {.kind = kind, .key = key});
}

/// Sends "declined": this rank cannot set up the link with `transport` or, if that is empty, with
/// any transport.
void LinkMaker::decline(WorldRank peer, const LinkKey& key, std::string_view transport,
                        const std::string& reason) {
  peers_.send(peer, {.kind = ControlKind::declined,
                     .key = key,
                     .transport = std::string(transport),
                     .failure = {.reason = reason}});
}

void LinkMaker::request(const Membership& group, Purpose purpose, GroupRank member) {
  const WorldRank peer = group.members[member];
  for (int rail = 0; rail < rails(peer); ++rail) {
    const LinkKey key{group.id, purpose, static_cast<std::uint8_t>(rail)};
    if (peer > rank_) awaited_.insert({peer, key});
    send(peer, ControlKind::open, key);
  }
}

void LinkMaker::hear(WorldRank peer, Channels& channels, const ControlMessage& message) {
  const LinkKey& key = message.key;
  switch (message.kind) {
    case ControlKind::open:
    case ControlKind::link:
      if (key.purpose == Purpose::control || key.rail >= rails(peer)) {
        throw CorruptionError(
            fmt::format("rank {} asks for a link with an invalid purpose or number", peer));
      }
      return message.kind == ControlKind::open ? opened(peer, channels, key)
                                               : go_on(peer, channels, message);
    case ControlKind::declined:
      return declined(peer, channels, message);
    case ControlKind::closed:
      return channels.lose(channels.group().rank_of(peer), "it has destroyed this group",
                           transport::Loss::left);
    default:
      return;
  }
}

/// Handles the message "open", with which the peer requests the link.
void LinkMaker::opened(WorldRank peer, Channels& channels, const LinkKey& key) {
  // No answer: the group has failed, and the peer learns it from the announced failure.
  if (channels.closed()) return;
  const GroupRank member = channels.group().rank_of(peer);
  Channel& channel = channels.at(key.purpose, member);
  if (peer < rank_) {
    if (!channel.has(key.rail) && !making_.contains({peer, key})) {
      make(peer, channels, key, 0, "no transport reaches it");
    }
  } else if (!std::exchange(channel.requested, true)) {
    request(channels.group(), key.purpose, member);
  }
}

const std::string* LinkMaker::declined_ahead(WorldRank peer, const LinkKey& key,
                                             Place place) const {
  const auto link = declined_ahead_.find({peer, key});
  if (link == declined_ahead_.end()) return nullptr;
  const auto found = link->second.find(place);
  return found == link->second.end() ? nullptr : &found->second;
}

/// Dials with each transport from the index `from` on, until one succeeds. Gives up the link if all
/// fail.
void LinkMaker::make(WorldRank peer, Channels& channels, const LinkKey& key, Place from,
                     std::string reason) {
  for (Place place = next(peer, from); place < transports_.size(); place = next(peer, place + 1)) {
    if (const std::string* const declined = declined_ahead(peer, key, place)) {
      reason = *declined;
      warn(peer, place, "that rank declined the link: " + reason);
      continue;
    }
    Making made;
    try {
      making_[{peer, key}] = place;
      made = transports_[place]->dial(peer, key, Clock::now() + patience_);
    } catch (const Error& error) {
      transports_[place]->cancel(peer, key);
      reason = error.what();
      warn(peer, place, reason);
      continue;
    }
    return take(peer, channels, key, place, std::move(made));
  }
  give_up(peer, &channels, key, reason);
}

/// Gives up the link. Informs the peer, which would otherwise wait for the link until its calls
/// time out.
void LinkMaker::give_up(WorldRank peer, Channels* channels, const LinkKey& key,
                        const std::string& reason) {
  making_.erase({peer, key});
  declined_ahead_.erase({peer, key});
  decline(peer, key, {}, reason);
  if (channels) channels->lose(channels->group().rank_of(peer), reason);
}

/// Handles the message "link", which contains set-up data from the peer's transport.
void LinkMaker::go_on(WorldRank peer, Channels& channels, const ControlMessage& message) {
  const bool made_here = peer < rank_;
  const Place place = find_transport(peer, message.transport);
  transport::Transport& transport = *transports_[place];
  if (made_here) {
    const auto found = making_.find({peer, message.key});
    if (found == making_.end() || found->second != place) {
      throw CorruptionError(fmt::format("rank {} accepts a link that was not offered", peer));
    }
  } else if (channels.closed()) {
    return transport.refuse(peer, message.key, message.blob);
  } else {
    leave_other(peer, message.key, place);
  }
  Making made;
  try {
    made = transport.hear(peer, message.key, message.blob);
  } catch (const CorruptionError&) {
    throw;
  } catch (const std::exception& error) {
    transport.cancel(peer, message.key);
    warn(peer, place, error.what());
    if (made_here) return make(peer, channels, message.key, place + 1, error.what());
    making_.erase({peer, message.key});
    return decline(peer, message.key, transport.name(), error.what());
  }
  take(peer, channels, message.key, place, std::move(made));
}

/// Handles the result of a transport's dial() or hear(). The link is attached before the peer is
/// informed, so that the link is ready when the peer uses it. If attaching fails, no other
/// transport is tried, because the peer may have written into this link.
void LinkMaker::take(WorldRank peer, Channels& channels, const LinkKey& key, Place place,
                     Making made) {
  if (made.link) {
    making_.erase({peer, key});
    attach(peer, channels, key, place, std::move(made.link));
  } else {
    making_[{peer, key}] = place;
  }
  if (!made.blob) return;
  peers_.send(peer, {.kind = ControlKind::link,
                     .key = key,
                     .transport = std::string(transports_[place]->name()),
                     .blob = std::move(*made.blob)});
}

void LinkMaker::declined(WorldRank peer, Channels& channels, const ControlMessage& message) {
  if (peer > rank_) {
    awaited_.erase({peer, message.key});
    cancel(peer, message.key);
    log_.warn("rank {} could not make a link to this rank, so calls that need it fail: {}", peer,
              message.failure.reason);
    return channels.lose(channels.group().rank_of(peer), message.failure.reason);
  }
  const auto found = making_.find({peer, message.key});
  const Place named = find_transport(peer, message.transport);
  // Ignores a refusal of a link that is already attached or that this rank no longer makes. A peer
  // sends such a refusal if it had no descriptors left for a while.
  const Channel& channel = channels.at(message.key.purpose, channels.group().rank_of(peer));
  const bool has_ended =
      channels.closed() || channel.has(message.key.rail) || !channel.lost.empty();
  if (found == making_.end() && has_ended) return;
  if (found != making_.end() && found->second < named) {
    declined_ahead_[found->first][named] = message.failure.reason;
    return;
  }
  if (found == making_.end() || found->second != named) {
    throw CorruptionError(fmt::format("rank {} declines a link that was not offered", peer));
  }
  const Place place = found->second;
  transports_[place]->cancel(peer, message.key);
  if (channels.closed()) {
    making_.erase(found);
    return;
  }
  warn(peer, place, "that rank declined the link: " + message.failure.reason);
  make(peer, channels, message.key, place + 1, message.failure.reason);
}

void LinkMaker::attach(WorldRank peer, Channels& channels, const LinkKey& key, Place place,
                       std::unique_ptr<transport::Link> link) {
  awaited_.erase({peer, key});
  declined_ahead_.erase({peer, key});
  if (on_made_) on_made_(transports_[place]->name());
  const char* what = key.purpose == Purpose::collective ? "collectives" : "messages";
  log_.debug("link {}, {} rank {} ({}, rail {}, group {:x}): {}", ++made_,
             peer < rank_ ? "to" : "from", peer, what, key.rail, key.group, link->description());
  channels.attach(key.purpose, channels.group().rank_of(peer), key.rail, rails(peer),
                  std::move(link), bytes_[{peer, key.rail, transports_[place]->name()}]);
}

void LinkMaker::refuse(WorldRank peer, const ControlMessage& message) {
  if (peer < rank_) return;  // the message answers an offer of a link that this rank has given up
  transports_[find_transport(peer, message.transport)]->refuse(peer, message.key, message.blob);
}

/// Called when the peer, which dials, uses the transport `place`. Cancels the link that this rank
/// has begun to make with another transport.
void LinkMaker::leave_other(WorldRank peer, const LinkKey& key, Place place) {
  const auto found = making_.find({peer, key});
  if (found != making_.end() && found->second != place) cancel(peer, key);
}

/// Cancels this rank's part of a link that is being made.
void LinkMaker::cancel(WorldRank peer, const LinkKey& key) {
  const auto found = making_.find({peer, key});
  if (found == making_.end()) return;
  transports_[found->second]->cancel(peer, key);
  making_.erase(found);
}

void LinkMaker::forget(std::uint64_t group) {
  std::erase_if(awaited_, [group](const auto& each) { return each.second.group == group; });
  std::erase_if(declined_ahead_,
                [group](const auto& each) { return each.first.second.group == group; });
  for (auto each = making_.begin(); each != making_.end();) {
    const auto [peer, key] = (each++)->first;
    if (key.group != group) continue;
    cancel(peer, key);
    send(peer, ControlKind::closed, key);
  }
}

void LinkMaker::progress(const std::function<bool(std::uint64_t group)>& closed) {
  for (Place place = 0; place < transports_.size(); ++place) {
    std::vector<LinkEvent> events;
    transports_[place]->progress(events);
    for (LinkEvent& event : events) {
      if (event.stood) {
        broken_.push_back(std::move(event));
      } else {
        handle(place, event, closed(event.key.group));
      }
    }
    if (awaited_.empty()) continue;
    const std::string trouble = transports_[place]->accepting_trouble();
    if (!trouble.empty()) decline_awaited(place, trouble);
  }
}

/// Declines the awaited links of this transport, because this rank cannot accept connections and
/// the peers would wait in vain. This includes links that a peer tries with another transport
/// first, because this rank cannot know when the peer moves on to this transport.
void LinkMaker::decline_awaited(Place place, const std::string& reason) {
  std::erase_if(awaited_, [&](const auto& each) {
    const auto& [peer, key] = each;
    if (!transports_[place]->reaches(peer) || making_.contains(each)) return false;
    log_.warn("cannot accept a link from rank {} over {}: {}", peer, transports_[place]->name(),
              reason);
    decline(peer, key, transports_[place]->name(), reason);
    return true;
  });
}

/// Handles the result that a transport's progress() reports for a link. Either rank of the pair may
/// have dialled.
void LinkMaker::handle(Place place, LinkEvent& event, bool closed) {
  const bool made_here = event.peer < rank_;
  const auto found = making_.find({event.peer, event.key});
  const bool begun = found != making_.end() && found->second == place;
  // Ignores the result of a dial that this rank has given up.
  if (made_here && !begun) return;
  if (begun) making_.erase(found);
  if (!made_here) leave_other(event.peer, event.key, place);
  Channels* channels = find_(event.key.group);
  if (channels && !channels->group().rank_of(event.peer).valid()) channels = nullptr;
  if (event.link) {
    if (channels) return attach(event.peer, *channels, event.key, place, std::move(event.link));
    if (closed) send(event.peer, ControlKind::closed, event.key);
    return;
  }
  warn(event.peer, place, event.reason);
  if (!made_here) return;
  if (channels && !channels->closed() && next(event.peer, place + 1) < transports_.size()) {
    return make(event.peer, *channels, event.key, place + 1, event.reason);
  }
  give_up(event.peer, channels, event.key, event.reason);
}

LinkMaker::Place LinkMaker::find_transport(WorldRank peer, const std::string& name) const {
  for (Place place = 0; place < transports_.size(); ++place) {
    if (transports_[place]->name() == name && transports_[place]->reaches(peer)) return place;
  }
  throw CorruptionError(fmt::format(
      "rank {} sent a message for the transport '{}', which does not reach that rank", peer, name));
}

void LinkMaker::warn(WorldRank peer, Place place, const std::string& reason) {
  const Place other = next(peer, place + 1);
  std::string text =
      fmt::format("no link to rank {} over {}: {}", peer, transports_[place]->name(), reason);
  if (other < transports_.size())
    text += fmt::format(". The next attempt uses {}", transports_[other]->name());
  warnings_[{peer, place}].write(log_, LogLevel::warn, Clock::now(), text);
}

std::vector<transport::Transport::LostPeer> LinkMaker::take_lost() {
  std::vector<transport::Transport::LostPeer> lost;
  for (const auto& transport : transports_)
    std::ranges::move(transport->take_lost(), std::back_inserter(lost));
  return lost;
}

void LinkMaker::send_receipts() {
  for (const auto& transport : transports_) {
    for (const auto& [peer, key, bytes] : transport->take_receipts())
      peers_.send(peer, {.kind = ControlKind::received, .key = key, .call = {.sequence = bytes}});
  }
}

void LinkMaker::watch(std::vector<pollfd>& descriptors) const {
  for (const auto& transport : transports_) transport->watch(descriptors);
}

Clock::time_point LinkMaker::next_deadline() const {
  Clock::time_point next = Clock::time_point::max();
  for (const auto& transport : transports_) next = std::min(next, transport->next_deadline());
  return next;
}

bool LinkMaker::arm() {
  bool armed = false;
  for (const auto& transport : transports_) armed |= transport->arm();
  return armed;
}

void LinkMaker::close() {
  making_.clear();
  transports_.clear();
}

}  // namespace mccl::engine
