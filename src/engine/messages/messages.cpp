#include "engine/messages/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/calls/failure.h"
#include "mccl/error.h"

namespace mccl::engine {
namespace {

/// Reason in the errors of later calls that need a member whose links have been given up. The text
/// is so short that assigning it allocates no memory.
constexpr const char* kGivenUp = "it has left";
/// Maximum number of pending messages that attended() looks at.
constexpr int kMostAttended = 16;

}  // namespace

Messages::Messages(Channels& channels, std::size_t payload_limit)
    : channels_(channels),
      eager_bytes_(std::min(kEagerBytes, payload_limit)),
      piece_bytes_(std::min(kPieceBytes, payload_limit)),
      peers_(static_cast<std::size_t>(channels.size())) {
  static_assert(sizeof(Unexpected) <= kEagerOverhead);
}

MemberGone::MemberGone(GroupRank member, const std::string& reason, bool whole)
    : PeerError(gone_text(member, reason)), member_(member), whole_(whole) {}

void Messages::finish(Operation& operation) noexcept {
  finished_.push_back(pending_.remove(operation));
}

std::size_t Messages::pieces_of(std::size_t bytes) const {
  return bytes / piece_bytes_ + (bytes % piece_bytes_ != 0);
}

std::size_t Messages::piece_size(std::size_t piece, std::size_t bytes) const {
  return std::min(piece_bytes_, bytes - piece * piece_bytes_);
}

void Messages::post_send(std::shared_ptr<Operation> operation) {
  Operation& send = *operation;
  pending_.push_back(std::move(operation));
  next_deadline_ = std::min(next_deadline_, send.deadline);
  Peer& peer = peers_[GroupRank(send.call.peer)];
  if (peer.held.empty() && peer.awaiting_grant.size() < kMostRequests) return announce(peer, send);
  peer.held.push_back(&send);
}

void Messages::announce_held(Peer& peer) {
  while (!peer.held.empty() && peer.awaiting_grant.size() < kMostRequests) {
    announce(peer, *peer.held.front());
    peer.held.pop_front();
  }
}

void Messages::announce(Peer& peer, Operation& send) {
  const std::size_t bytes = send.in.bytes();
  Outgoing outgoing;
  send.call.sequence = peer.next_number++;
  outgoing.frame.call = send.call;
  if (bytes <= eager_bytes_ && peer.credit_used + bytes + kEagerOverhead <= kEagerCredit) {
    peer.credit_used += bytes + kEagerOverhead;
    outgoing.frame.kind = FrameKind::eager;
    outgoing.payload = {static_cast<const std::byte*>(send.in.data), bytes};
    outgoing.operation = &send;
  } else {
    outgoing.frame.kind = FrameKind::request;
    peer.awaiting_grant.emplace(send.call.sequence, &send);
  }
  peer.announcements.push_back(outgoing);
}

void Messages::post_receive(std::shared_ptr<Operation> operation) {
  Operation& receive = *operation;
  pending_.push_back(std::move(operation));
  next_deadline_ = std::min(next_deadline_, receive.deadline);
  receive.message.order = ++receives_;
  const auto found = find_unexpected(receive);
  if (found == unexpected_.end()) {
    posted_[{receive.call.peer, receive.call.tag}].push_back(&receive);
    ++(receive.call.peer < 0 ? posted_for_any_ : peers_[GroupRank(receive.call.peer)].posted);
    return;
  }
  std::list<Unexpected> taken;
  taken.splice(taken.begin(), found->second, found->second.begin());
  if (found->second.empty()) unexpected_.erase(found);
  const Unexpected& message = taken.front();
  --peers_[message.source].kept;
  check(receive.call, message.source, message.frame);
  message.frame.kind == FrameKind::request ? accept(message, receive) : deliver(message, receive);
}

/// Among the lists of messages that match the receive, finds the one whose oldest message arrived
/// first. Returns unexpected_.end() if no list matches.
Messages::Matches<Messages::Unexpected>::iterator Messages::find_unexpected(
    const Operation& receive) {
  const std::uint32_t tag = receive.call.tag;
  if (receive.call.peer >= 0) return unexpected_.find({receive.call.peer, tag});
  auto oldest = unexpected_.end();
  for (GroupRank source(0); source < peers_.end_rank() && !unexpected_.empty(); ++source) {
    const auto found = unexpected_.find({source.number(), tag});
    if (found == unexpected_.end()) continue;
    if (oldest == unexpected_.end() || found->second.front().order < oldest->second.front().order) {
      oldest = found;
    }
  }
  return oldest;
}

/// Writes first. If frames then still wait for space in a link, reads from all peers, so that two
/// ranks whose links are full do not wait for each other.
bool Messages::advance() {
  bool moved = false;
  blocked_ = false;
  for (GroupRank rank(0); rank < peers_.end_rank(); ++rank) {
    Peer& peer = peers_[rank];
    if (!peer.has_to_write()) continue;
    const bool wrote = write_to(rank, peer);
    if (wrote || !peer.has_to_write()) peer.blocked_since = Clock::time_point::max();
    blocked_ |= peer.has_to_write();
    moved |= wrote;
  }
  for (GroupRank rank(0); rank < peers_.end_rank(); ++rank) {
    if (wants_to_read(peers_[rank])) moved |= read_from(rank, peers_[rank]);
  }
  return moved;
}

bool Messages::attended() const {
  if (!finished_.empty() || reading_ahead_ != 0 || blocked_) return false;
  int looked_at = 0;
  for (const Operation& each : pending_) {
    if (!each.caller_waits || ++looked_at > kMostAttended) return false;
  }
  return true;
}

Operation* Messages::match(GroupRank source, const Frame& frame) {
  auto oldest = posted_.end();
  for (const std::int32_t from : {source.number(), -1}) {
    const auto found = posted_.find({from, frame.call.tag});
    if (found == posted_.end()) continue;
    if (oldest == posted_.end() ||
        found->second.front()->message.order < oldest->second.front()->message.order) {
      oldest = found;
    }
  }
  if (oldest == posted_.end()) return nullptr;
  Operation& receive = *oldest->second.front();
  check(receive.call, source, frame);
  unpost(receive);
  return &receive;
}

/// Removes the receive from posted_. Returns false if posted_ does not contain it.
bool Messages::unpost(Operation& receive) {
  const auto found = posted_.find({receive.call.peer, receive.call.tag});
  if (found == posted_.end()) return false;
  std::list<Operation*>& same = found->second;
  const auto place = std::find(same.begin(), same.end(), &receive);
  if (place == same.end()) return false;
  same.erase(place);
  if (same.empty()) posted_.erase(found);
  --(receive.call.peer < 0 ? posted_for_any_ : peers_[GroupRank(receive.call.peer)].posted);
  return true;
}

void Messages::keep(Unexpected message) {
  message.order = ++arrivals_;
  unexpected_[{message.source.number(), message.frame.call.tag}].push_back(std::move(message));
}

void Messages::check(const Call& receive, GroupRank source, const Frame& frame) const {
  if (receive.count == frame.call.count && receive.dtype == frame.call.dtype) return;
  throw MismatchError(fmt::format(
      "rank {} sent {} {} (tag {}), but the receive expects {} {}: sizes and types must agree",
      source, frame.call.count, name_of(frame.call.dtype), frame.call.tag, receive.count,
      name_of(receive.dtype)));
}

void Messages::accept(const Unexpected& request, Operation& receive) {
  receive.received_from(request.source);
  receive.call.sequence = request.frame.call.sequence;
  if (request.payload.empty()) return grant(request.source, receive);
  std::memcpy(&receive.message.address, request.payload.data(), sizeof receive.message.address);
  peers_[request.source].pulls.push_back(&receive);
}

void Messages::grant(GroupRank source, Operation& receive) {
  receive.message.pieces = pieces_of(receive.out.bytes());
  Outgoing outgoing{.frame = {.kind = FrameKind::grant}};
  outgoing.frame.call.sequence = receive.call.sequence;
  if (receive.message.pieces > 0) {
    receive.message.arriving.assign(receive.message.pieces, false);
    peers_[source].incoming.emplace(receive.call.sequence, &receive);
  } else {
    outgoing.operation = &receive;
  }
  peers_[source].announcements.push_back(outgoing);
}

void Messages::deliver(const Unexpected& message, Operation& receive) {
  deliver(message.source, message.payload, receive);
  receive.call.sequence = message.frame.call.sequence;
  receive.received_from(message.source);
  finish(receive);
}

void Messages::deliver(GroupRank source, std::span<const std::byte> payload, Task& receive) {
  if (payload.size() != receive.out.bytes()) {
    throw CorruptionError(
        fmt::format("{} received {} bytes from rank {}, but {} bytes were announced",
                    describe(receive.call), payload.size(), source, receive.out.bytes()));
  }
  if (!payload.empty()) std::memcpy(receive.out.data, payload.data(), payload.size());
  receive.traffic.bytes_received += payload.size();
  return_credit(source, payload.size() + kEagerOverhead);
}

void Messages::return_credit(GroupRank source, std::size_t cost) {
  Peer& peer = peers_[source];
  peer.credit_owed += cost;
  if (peer.credit_owed < kEagerCredit / 4) return;
  peer.credit_lent -= peer.credit_owed;
  Outgoing outgoing{.frame = {.kind = FrameKind::credit}};
  outgoing.frame.call.count = std::exchange(peer.credit_owed, 0);
  peer.announcements.push_back(outgoing);
}

Operation* Messages::posted_for_any() {
  if (posted_for_any_ == 0) return nullptr;
  const auto found = std::ranges::find_if(
      posted_, [](const auto& each) { return each.first.first < 0 && !each.second.empty(); });
  return found == posted_.end() ? nullptr : found->second.front();
}

Operation* Messages::find_late(Clock::time_point now) {
  if (now < next_deadline_) return nullptr;
  Clock::time_point next = Clock::time_point::max();
  for (Operation& operation : pending_) {
    if (now >= operation.deadline) return &operation;
    next = std::min(next, operation.deadline);
  }
  next_deadline_ = next;
  return nullptr;
}

std::string Messages::why_late(const Operation& late) const {
  const bool receives = late.call.collective == Collective::recv;
  const std::string peer =
      late.call.peer < 0 ? std::string("any rank") : fmt::format("rank {}", late.call.peer);
  if (receives) {
    if (late.call.sequence != 0) return fmt::format("and its sender, {}, stopped sending", peer);
    if (late.call.peer < 0) return "and no matching message arrived from any rank";
    const std::uint64_t last = peers_[GroupRank(late.call.peer)].next_announced - 1;
    return fmt::format("and no matching message arrived from {}{}", peer,
                       last == 0 ? "" : fmt::format(" after message {}", last));
  }
  if (!peers_[GroupRank(late.call.peer)].held.empty()) {
    return fmt::format(
        "and its receiver, {}, has not posted receives for {} messages; until it does, later "
        "messages are not sent",
        peer, kMostRequests);
  }
  if (peers_[GroupRank(late.call.peer)].awaiting_grant.contains(late.call.sequence)) {
    if (late.message.address != 0) {
      return fmt::format(
          "and its receiver, {}, has not posted a receive, or has not copied the whole message",
          peer);
    }
    return fmt::format(
        "and its receiver, {}, has not posted a receive; until it does, at most {} bytes of "
        "messages may be in flight, and each message counts {} bytes more than its size",
        peer, kEagerCredit, kEagerOverhead);
  }
  return fmt::format("and its receiver, {}, has not read the whole message", peer);
}

std::shared_ptr<Operation> Messages::cancel(Operation& operation) {
  if (operation.call.collective != Collective::recv || !unpost(operation)) return nullptr;
  return pending_.remove(operation);
}

void Messages::Peer::clear() noexcept {
  for (LaneState& state : lanes) {
    state.writing.reset();
    state.reading = {};
  }
  announcements.clear();
  granted.clear();
  awaiting_grant.clear();
  held.clear();
  pulls.clear();
  incoming.clear();
  posted = writing = 0;
}

OperationList Messages::drop_all() noexcept {
  posted_.clear();
  unexpected_.clear();
  posted_for_any_ = 0;
  for (Peer& peer : peers_) {
    peer.clear();
    peer.kept = 0;
    end_reading_ahead(peer);
  }
  return std::exchange(pending_, {});
}

std::optional<OperationList> Messages::give_up(GroupRank rank, bool whole) noexcept {
  Peer& peer = peers_[rank];
  for (const auto& lane : channels_.at(transport::Purpose::point_to_point, rank).lanes) {
    if (lane && lane->link().borrowed() > 0) return std::nullopt;
    if (lane) lane->link().release();
  }
  const bool lends = std::ranges::any_of(
      peer.awaiting_grant, [](const auto& each) { return each.second->message.address != 0; });
  if (lends)
    channels_.at(transport::Purpose::point_to_point, rank).lanes.front()->link().withdraw_memory();
  // No data follow the grant of an empty message, and none follow after a message was pulled. So
  // these receives complete when the grant, or `pulled`, has been sent. The unsent frames are
  // dropped here, so their receives must complete here.
  const auto end_receive = [this](const Outgoing& outgoing) {
    Operation* const operation = outgoing.operation;
    if (operation && operation->call.collective == Collective::recv) finish(*operation);
  };
  for (const Outgoing& outgoing : peer.announcements) end_receive(outgoing);
  for (LaneState& state : peer.lanes) {
    if (state.writing) end_receive(*state.writing);
    state.writing.reset();
  }
  peer.announcements.clear();
  peer.granted.clear();
  peer.awaiting_grant.clear();
  peer.held.clear();
  peer.writing = 0;
  OperationList ended;
  if (whole) {
    for (const auto& [number, receive] : peer.incoming) ended.push_back(pending_.remove(*receive));
    for (Operation* const receive : peer.pulls) ended.push_back(pending_.remove(*receive));
    peer.incoming.clear();
    peer.pulls.clear();
    // The lanes are dropped, because a lane may be in the middle of a piece whose receive ends
    // here.
    Channel& channel = channels_.at(transport::Purpose::point_to_point, rank);
    channel.lanes.clear();
    if (channel.lost.empty()) channel.lost = kGivenUp;
    for (LaneState& state : peer.lanes) state.reading = {};
    end_reading_ahead(peer);
  }
  for (auto each = pending_.begin(); each != pending_.end();) {
    Operation& operation = *each++;
    if (operation.call.peer != rank.number()) continue;
    const bool ends = operation.call.collective == Collective::send || (whole && unpost(operation));
    if (ends) ended.push_back(pending_.remove(operation));
  }
  return ended;
}

void Messages::watch(Sleep& sleep) {
  for (GroupRank rank(0); rank < peers_.end_rank(); ++rank) {
    const Channel& channel = channels_.at(transport::Purpose::point_to_point, rank);
    if (!channel.connected()) continue;
    const bool reads = wants_to_read(peers_[rank]);
    if (peers_[rank].blocked_since != Clock::time_point::max()) {
      sleep.until = std::min(sleep.until, peers_[rank].blocked_since + kAskAfter);
    }
    for (const auto& lane : channel.lanes) {
      // advance() has already given each free lane a frame to send, if there is one. So only lanes
      // that are sending wait for space.
      const short events = (reads ? POLLIN : 0) | (lane->sending() ? POLLOUT : 0);
      sleep.watch(lane->link(), events);
    }
  }
}

}  // namespace mccl::engine
