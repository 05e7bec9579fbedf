// The part of Messages that sends or receives one small message on the caller's thread. It
// allocates no memory and does not read the clock. It handles only the simplest cases; the caller
// submits other messages to the driver.
#include <algorithm>
#include <utility>

#include "engine/messages/messages.h"

namespace mccl::engine {

using transport::Purpose;

AtOnce Messages::send_at_once(Task& task) {
  const GroupRank rank(task.call.peer);
  Peer& peer = peers_[rank];
  Channel& channel = channels_.at(Purpose::point_to_point, rank);
  const std::size_t cost = task.in.bytes() + kEagerOverhead;
  if (cost > eager_bytes_ + kEagerOverhead || peer.credit_used + cost > kEagerCredit ||
      peer.has_to_write() || !peer.held.empty() || !channel.connected() || !channel.lost.empty()) {
    return AtOnce::no;
  }
  peer.lanes.resize(channel.lanes.size());
  Outgoing outgoing{.frame = {.kind = FrameKind::eager, .call = task.call}};
  outgoing.frame.call.sequence = peer.next_number;
  outgoing.payload = {static_cast<const std::byte*>(task.in.data), task.in.bytes()};
  Lane& lane = *channel.lanes.front();
  bool whole = false;
  try {
    lane.start(outgoing.frame, outgoing.payload, 0);
    whole = lane.push(task.traffic);
  } catch (const transport::LinkClosed& closed) {
    channel.lost = closed.what();
    return AtOnce::no;
  }
  task.call.sequence = peer.next_number++;
  peer.credit_used += cost;
  if (whole) return AtOnce::whole;
  peer.lanes.front().writing = outgoing;
  ++peer.writing;
  return AtOnce::not_yet;
}

void Messages::go_on_with(std::shared_ptr<Operation> send) noexcept {
  Peer& peer = peers_[GroupRank(send->call.peer)];
  send->call.sequence = peer.next_number - 1;
  peer.lanes.front().writing->operation = send.get();
  next_deadline_ = std::min(next_deadline_, send->deadline);
  pending_.push_back(std::move(send));
}

/// Returns false if other receives are posted, because the next message may match one of those
/// receives.
bool Messages::may_receive_at_once(const Task& task) {
  if (task.call.peer < 0 || !posted_.empty()) return false;
  const GroupRank rank(task.call.peer);
  Peer& peer = peers_[rank];
  const Channel& channel = channels_.at(Purpose::point_to_point, rank);
  if (!channel.connected() || !channel.lost.empty()) return false;
  peer.lanes.resize(channel.lanes.size());
  return peer.lanes.front().between_messages() && !channel.lanes.front()->header() &&
         !unexpected_.contains({task.call.peer, task.call.tag});
}

AtOnce Messages::receive_at_once(Task& task) {
  const GroupRank rank(task.call.peer);
  Peer& peer = peers_[rank];
  Lane& lane = *channels_.at(Purpose::point_to_point, rank).lanes.front();
  const std::optional<Lane::Arriving> message = lane.peek_message();
  if (!message) return AtOnce::not_yet;
  const Frame& frame = message->frame;
  if (frame.kind == FrameKind::credit) {
    check_form(rank, peer, peer.lanes.front(), frame);
    lane.consume_message(*message);
    take_credit(rank, peer, frame);
    return AtOnce::not_yet;
  }
  if (frame.kind != FrameKind::eager || frame.call.tag != task.call.tag) return AtOnce::no;
  if (!message->whole()) return message->fits ? AtOnce::not_yet : AtOnce::no;
  check_form(rank, peer, peer.lanes.front(), frame);
  check(task.call, rank, frame);
  count_announcement(rank, peer, frame);
  deliver(rank, message->payload, task);
  task.call.sequence = frame.call.sequence;
  lane.consume_message(*message);
  ++peer.taken;
  note_ahead(peer);
  // Sends the returned credit now: the sender may need it before this rank's next call.
  if (peer.has_to_write()) write_to(rank, peer);
  return AtOnce::whole;
}

}  // namespace mccl::engine
