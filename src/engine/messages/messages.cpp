#include "engine/messages/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "mccl/error.h"

namespace mccl::engine {

Messages::Messages(Channels& channels, std::size_t payload_limit)
    : channels_(channels),
      eager_bytes_(std::min(kEagerBytes, payload_limit)),
      piece_bytes_(std::min(kPieceBytes, payload_limit)),
      peers_(static_cast<std::size_t>(channels.size())) {
  static_assert(sizeof(Unexpected) <= kEagerOverhead);
}

void Messages::announce(GroupRank rank, Outgoing outgoing) {
  peers_[rank].announcements.push_back(std::move(outgoing));
}

void Messages::finish(std::shared_ptr<Operation> operation) {
  finished_.push_back(std::move(operation));
}

Messages::Finished Messages::take_finished() {
  active_ -= finished_.size();
  return std::exchange(finished_, {});
}

std::size_t Messages::pieces_of(std::size_t bytes) const {
  return bytes / piece_bytes_ + (bytes % piece_bytes_ != 0);
}

std::size_t Messages::piece_size(std::size_t piece, std::size_t bytes) const {
  return std::min(piece_bytes_, bytes - piece * piece_bytes_);
}

void Messages::post_send(std::shared_ptr<Operation> operation) {
  ++active_;
  const GroupRank rank(operation->call.peer);
  Peer& peer = peers_[rank];
  const std::size_t bytes = operation->input.bytes();
  Outgoing outgoing;
  outgoing.frame.call = operation->call;
  outgoing.frame.call.sequence = peer.next_number++;
  if (bytes <= eager_bytes_ && peer.credit_used + bytes + kEagerOverhead <= kEagerCredit) {
    peer.credit_used += bytes + kEagerOverhead;
    outgoing.frame.kind = FrameKind::eager;
    outgoing.payload = {static_cast<const std::byte*>(operation->input.data), bytes};
    outgoing.operation = std::move(operation);
  } else {
    outgoing.frame.kind = FrameKind::request;
    peer.awaiting_grant.emplace(outgoing.frame.call.sequence, std::move(operation));
  }
  announce(rank, std::move(outgoing));
}

void Messages::post_receive(std::shared_ptr<Operation> operation) {
  ++active_;
  const auto found =
      std::find_if(unexpected_.begin(), unexpected_.end(), [&](const Unexpected& message) {
        return may_come_from(*operation, message.source) &&
               operation->call.tag == message.frame.call.tag;
      });
  if (found == unexpected_.end()) {
    posted_.push_back(std::move(operation));
    return;
  }
  const Unexpected message = std::move(*found);
  unexpected_.erase(found);
  check(*operation, message.source, message.frame);
  if (message.frame.kind == FrameKind::request) {
    grant(message.source, message.frame, std::move(operation));
  } else {
    deliver(message, std::move(operation));
  }
}

bool Messages::advance() {
  bool moved = false;
  for (GroupRank rank(0); rank < peers_.end_rank(); ++rank) {
    Peer& peer = peers_[rank];
    if (peer.has_to_write()) moved |= write_to(rank, peer);
    if (wants_to_read(rank, peer)) moved |= read_from(rank, peer);
  }
  return moved;
}

std::shared_ptr<Operation> Messages::match(GroupRank source, const Frame& frame) {
  const auto found = std::find_if(posted_.begin(), posted_.end(), [&](const auto& receive) {
    return may_come_from(*receive, source) && receive->call.tag == frame.call.tag;
  });
  if (found == posted_.end()) return nullptr;
  check(**found, source, frame);
  std::shared_ptr<Operation> receive = std::move(*found);
  posted_.erase(found);
  return receive;
}

void Messages::check(const Operation& receive, GroupRank source, const Frame& frame) const {
  if (receive.call.count == frame.call.count && receive.call.dtype == frame.call.dtype) return;
  throw MismatchError(fmt::format(
      "rank {} sent {} {} (tag {}) where {} {} are received: sizes and types must agree", source,
      frame.call.count, name_of(frame.call.dtype), frame.call.tag, receive.call.count,
      name_of(receive.call.dtype)));
}

void Messages::grant(GroupRank source, const Frame& request, std::shared_ptr<Operation> receive) {
  receive->received_from(source);
  Outgoing outgoing;
  outgoing.frame.kind = FrameKind::grant;
  outgoing.frame.call.sequence = request.call.sequence;
  if (const std::size_t pieces = pieces_of(receive->output.bytes()); pieces > 0) {
    peers_[source].incoming.emplace(
        request.call.sequence,
        Incoming{std::move(receive), std::vector<bool>(pieces, false), pieces});
  } else {
    outgoing.operation = std::move(receive);
  }
  announce(source, std::move(outgoing));
}

void Messages::deliver(const Unexpected& message, std::shared_ptr<Operation> receive) {
  const std::size_t bytes = message.payload.size();
  if (bytes != receive->output.bytes()) {
    throw CorruptionError(fmt::format("{} got {} bytes from rank {}: {} were announced",
                                      describe(receive->call), bytes, message.source,
                                      receive->output.bytes()));
  }
  if (bytes > 0) std::memcpy(receive->output.data, message.payload.data(), bytes);
  receive->traffic.bytes_received += bytes;
  receive->received_from(message.source);
  return_credit(message.source, bytes + kEagerOverhead);
  finish(std::move(receive));
}

void Messages::return_credit(GroupRank source, std::size_t cost) {
  Peer& peer = peers_[source];
  peer.credit_owed += cost;
  if (peer.credit_owed < kEagerCredit / 4) return;
  peer.credit_lent -= peer.credit_owed;
  Outgoing outgoing;
  outgoing.frame.kind = FrameKind::credit;
  outgoing.frame.call.count = std::exchange(peer.credit_owed, 0);
  announce(source, std::move(outgoing));
}

bool Messages::cancel(const Operation& operation) {
  const auto is_it = [&operation](const auto& pending) { return pending.get() == &operation; };
  if (const auto found = std::find_if(posted_.begin(), posted_.end(), is_it);
      found != posted_.end()) {
    posted_.erase(found);
    --active_;
    return true;
  }
  return false;
}

Messages::Finished Messages::pending() const {
  Finished all(posted_.begin(), posted_.end());
  // A piece's operation is among the granted.
  const auto add = [&all](const Outgoing& outgoing) {
    const bool listed = outgoing.frame.kind == FrameKind::data;
    if (outgoing.operation && !listed) all.push_back(outgoing.operation);
  };
  for (const Peer& peer : peers_) {
    for (const auto& [number, operation] : peer.awaiting_grant) all.push_back(operation);
    for (const auto& [number, incoming] : peer.incoming) all.push_back(incoming.operation);
    for (const Granted& granted : peer.granted) all.push_back(granted.operation);
    for (const Outgoing& outgoing : peer.announcements) add(outgoing);
    for (const LaneState& state : peer.lanes) {
      if (state.writing) add(*state.writing);
    }
  }
  return all;
}

Messages::Finished Messages::drop_all() {
  Finished all = pending();
  posted_.clear();
  unexpected_.clear();
  for (Peer& peer : peers_) peer = Peer{};
  active_ = finished_.size();
  return all;
}

void Messages::watch(Sleep& sleep) {
  for (GroupRank rank(0); rank < peers_.end_rank(); ++rank) {
    const Channel& channel = channels_.at(transport::Purpose::point_to_point, rank);
    if (!channel.connected()) continue;
    const bool reads = wants_to_read(rank, peers_[rank]);
    for (const auto& lane : channel.lanes) {
      // Whatever a free lane could take, it has been given.
      const short events = (reads ? POLLIN : 0) | (lane->sending() ? POLLOUT : 0);
      sleep.watch(lane->link(), events);
    }
  }
}

}  // namespace mccl::engine
