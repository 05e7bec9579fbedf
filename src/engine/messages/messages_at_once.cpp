// The part of Messages that sends or receives one small message on the caller's thread. It
// allocates no memory and does not read the clock. It handles only the simplest cases; the caller
// submits other messages to the driver.
#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/messages/messages.h"

namespace mccl::engine {

using transport::Purpose;

/// Returns the first lane to the peer; null if the peer is not connected or lost. Then peer.lanes
/// has an element for each lane.
Lane* Messages::first_lane(GroupRank rank, Peer& peer) {
  const Channel& channel = channels_.at(Purpose::point_to_point, rank);
  if (!channel.connected() || !channel.lost.empty()) return nullptr;
  if (peer.lanes.size() != channel.lanes.size()) peer.lanes.resize(channel.lanes.size());
  return channel.lanes.front().get();
}

AtOnce Messages::send_at_once(Task& task) {
  const GroupRank rank(task.call.peer);
  Peer& peer = peers_[rank];
  const std::span payload(static_cast<const std::byte*>(task.in.data), task.in.bytes());
  const std::size_t cost = payload.size() + kEagerOverhead;
  if (payload.size() > eager_bytes_ || peer.credit_used + cost > kEagerCredit ||
      peer.has_to_write() || !peer.held.empty()) {
    return AtOnce::no;
  }
  Lane* const lane = first_lane(rank, peer);
  if (!lane) return AtOnce::no;
  Frame frame{.kind = FrameKind::eager, .call = task.call};
  frame.call.sequence = peer.next_number;
  bool whole = false;
  try {
    lane->start(frame, payload, 0);
    whole = lane->push(task.traffic);
  } catch (const transport::LinkClosed& closed) {
    channels_.at(Purpose::point_to_point, rank).lost = closed.what();
    return AtOnce::no;
  }
  task.call.sequence = peer.next_number++;
  peer.credit_used += cost;
  if (whole) return AtOnce::whole;
  peer.lanes.front().writing = Outgoing{.frame = frame, .payload = payload};
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
/// receives. Otherwise prepares the header that the message should have, while the message may
/// still be on its way.
bool Messages::may_receive_at_once(const Task& task) {
  if (task.call.peer < 0 || !posted_.empty()) return false;
  const GroupRank rank(task.call.peer);
  Peer& peer = peers_[rank];
  const Lane* const lane = first_lane(rank, peer);
  if (!lane || !peer.lanes.front().between_messages() || lane->header() ||
      unexpected_.contains({task.call.peer, task.call.tag})) {
    return false;
  }
  expected_ = encode({.kind = FrameKind::eager,
                      .call = {.collective = Collective::send,
                               .dtype = task.call.dtype,
                               .count = task.call.count,
                               .sequence = peer.next_announced,
                               .tag = task.call.tag},
                      .payload_bytes = static_cast<std::uint32_t>(task.out.bytes())});
  return true;
}

AtOnce Messages::receive_at_once(Task& task) {
  const GroupRank rank(task.call.peer);
  Lane& lane = *channels_.at(Purpose::point_to_point, rank).lanes.front();
  const std::span<const std::byte> arrived = lane.peek_message_bytes();
  if (arrived.empty()) return AtOnce::not_yet;
  Peer& peer = peers_[rank];
  const std::size_t bytes = task.out.bytes();
  if (lane.has_crc() || bytes > eager_bytes_ || arrived.size() < kFrameBytes + bytes ||
      std::memcmp(arrived.data(), expected_.data(), kFrameBytes) != 0) {
    return receive_decoded(rank, peer, lane, task);
  }
  // A header with exactly the expected bytes needs neither decoding nor checks.
  lend_credit(rank, peer, bytes);
  task.call.sequence = peer.next_announced++;
  deliver(rank, arrived.subspan(kFrameBytes, bytes), task);
  lane.consume_message(bytes);
  end_receive_at_once(rank, peer);
  return AtOnce::whole;
}

/// Decodes and checks the next message, whose header has arrived.
AtOnce Messages::receive_decoded(GroupRank rank, Peer& peer, Lane& lane, Task& task) {
  const Lane::Arriving message = lane.peek_message();
  const Frame& frame = message.frame;
  if (frame.kind == FrameKind::credit) {
    check_form(rank, peer, peer.lanes.front(), frame);
    lane.consume_message(message);
    take_credit(rank, peer, frame);
    return AtOnce::not_yet;
  }
  if (frame.kind != FrameKind::eager || frame.call.tag != task.call.tag) return AtOnce::no;
  if (!message.whole()) return message.fits ? AtOnce::not_yet : AtOnce::no;
  check_form(rank, peer, peer.lanes.front(), frame);
  check(task.call, rank, frame);
  count_announcement(rank, peer, frame);
  deliver(rank, message.payload, task);
  task.call.sequence = frame.call.sequence;
  lane.consume_message(message);
  end_receive_at_once(rank, peer);
  return AtOnce::whole;
}

/// Sends the returned credit now: the sender may need it before this rank's next call.
void Messages::end_receive_at_once(GroupRank rank, Peer& peer) {
  ++peer.taken;
  note_ahead(peer);
  if (peer.has_to_write()) write_to(rank, peer);
}

}  // namespace mccl::engine
