// The moving half of Messages: frames out, frames in.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>

#include "engine/messages.h"
#include "mccl/error.h"

namespace mccl::engine {

using rendezvous::Purpose;

bool Messages::write_to(int rank, Peer& peer, Finished& finished) {
  peer.channel = &channels_.open(Purpose::point_to_point, rank);
  if (!peer.channel->connected()) return false;
  const Channel& channel = *peer.channel;
  peer.writing.resize(channel.lanes.size());
  bool moved = false;
  for (std::size_t rail = 0; rail < channel.lanes.size(); ++rail) {
    if (channel.lanes[rail]->sending()) moved |= push(peer, rail, finished);
  }
  while (!peer.outgoing.empty()) {
    std::optional<std::size_t> rail = channel.free_rail();
    // Only granted pieces may overtake: the order of announcements is the order of matching.
    if (peer.outgoing.front().frame.kind != FrameKind::data) rail = 0;
    if (!rail || channel.lanes[*rail]->sending()) break;
    Outgoing& current = peer.writing[*rail];
    current = std::move(peer.outgoing.front());
    peer.outgoing.pop_front();
    channel.lanes[*rail]->start(current.frame, current.payload, 0);
    moved |= push(peer, *rail, finished);
  }
  const bool writing = std::any_of(channel.lanes.begin(), channel.lanes.end(),
                                   [](const auto& lane) { return lane->sending(); });
  if (!writing) peer.writing.clear();
  return moved;
}

bool Messages::push(Peer& peer, std::size_t rail, Finished& finished) {
  Outgoing& current = peer.writing[rail];
  Traffic aside;
  Traffic& traffic = current.operation ? current.operation->traffic : aside;
  const std::uint64_t before = traffic.bytes_sent;
  const bool gone = peer.channel->lanes[rail]->push(traffic);
  const bool moved = traffic.bytes_sent != before;
  if (!gone) return moved;
  if (current.operation && --current.operation->frames_left == 0) {
    finish(std::move(current.operation), finished);
  }
  current = {};
  return moved;
}

bool Messages::wants_to_read(int rank, const Peer& peer) const {
  if (!peer.awaiting_grant.empty() || !peer.incoming.empty()) return true;
  return std::any_of(posted_.begin(), posted_.end(), [rank](const auto& operation) {
    return operation->call.peer < 0 || operation->call.peer == rank;
  });
}

bool Messages::read_from(int rank, Peer& peer, Finished& finished) {
  Channel& channel = channels_.at(Purpose::point_to_point, rank);
  try {
    if (channel.connected()) return read_lanes(rank, peer, channel, finished);
  } catch (const transport::LinkClosed& closed) {
    channel.lanes.clear();
    if (channel.lost.empty()) channel.lost = closed.what();
  }
  const bool only_this_peer_will_do =
      !peer.awaiting_grant.empty() || !peer.incoming.empty() ||
      std::any_of(posted_.begin(), posted_.end(),
                  [rank](const auto& operation) { return operation->call.peer == rank; });
  if (only_this_peer_will_do && !channel.lost.empty()) {
    throw PeerError(fmt::format("rank {} is gone: {}", rank, channel.lost));
  }
  return false;
}

bool Messages::read_lanes(int rank, Peer& peer, Channel& channel, Finished& finished) {
  bool moved = false;
  for (const auto& lane : channel.lanes) {
    while (wants_to_read(rank, peer)) {
      if (!lane->header()) {
        Traffic aside;
        if (!lane->incoming(aside)) break;
        take_header(rank, peer, *lane);
        moved = true;
      }
      if (!lane->header()) continue;
      const std::size_t before = lane->payload_received();
      const bool whole = take_payload(rank, peer, *lane, finished);
      moved |= whole || lane->payload_received() != before;
      if (!whole) break;
    }
  }
  return moved;
}

void Messages::take_header(int rank, Peer& peer, Lane& lane) {
  const Frame frame = *lane.header();
  switch (frame.kind) {
    case FrameKind::eager:
      if (frame.payload_bytes > kEagerBytes || peer.arriving) break;
      peer.arriving = Unexpected{rank, frame, std::vector<std::byte>(frame.payload_bytes)};
      return;
    case FrameKind::data:
      if (!peer.incoming.contains(frame.call.sequence)) break;
      return;
    case FrameKind::request:
      lane.finish_incoming();
      if (std::shared_ptr<Operation> receive = match(rank, frame)) {
        grant(rank, frame, std::move(receive));
      } else {
        unexpected_.push_back({rank, frame, {}});
      }
      return;
    case FrameKind::grant:
      lane.finish_incoming();
      granted(rank, peer, frame);
      return;
    case FrameKind::credit:
      lane.finish_incoming();
      peer.eager_in_flight -= std::min<std::size_t>(peer.eager_in_flight, frame.call.count);
      return;
    case FrameKind::collective:
      break;
  }
  throw CorruptionError(fmt::format("rank {} sent a message that no send announced", rank));
}

bool Messages::take_payload(int rank, Peer& peer, Lane& lane, Finished& finished) {
  return lane.header()->kind == FrameKind::eager ? take_eager(rank, peer, lane, finished)
                                                 : take_piece(rank, peer, lane, finished);
}

bool Messages::take_eager(int rank, Peer& peer, Lane& lane, Finished& finished) {
  Traffic aside;
  if (!lane.read_payload(peer.arriving->payload, aside)) return false;
  lane.finish_incoming();
  Unexpected message = std::move(*peer.arriving);
  peer.arriving.reset();
  if (std::shared_ptr<Operation> receive = match(rank, message.frame)) {
    deliver(message, *receive);
    finish(std::move(receive), finished);
  } else {
    unexpected_.push_back(std::move(message));
  }
  return true;
}

bool Messages::take_piece(int rank, Peer& peer, Lane& lane, Finished& finished) {
  const Frame& frame = *lane.header();
  const auto found = peer.incoming.find(frame.call.sequence);
  Incoming& incoming = found->second;
  const std::size_t total = incoming.operation->output.bytes();
  const std::size_t offset = frame.message * piece_bytes_;
  if (offset >= total || frame.payload_bytes != std::min(piece_bytes_, total - offset) ||
      frame.payload_bytes > incoming.bytes_left) {
    throw CorruptionError(fmt::format("rank {} sent a piece that does not fit into {}", rank,
                                      describe(incoming.operation->call)));
  }
  auto* destination = static_cast<std::byte*>(incoming.operation->output.data) + offset;
  if (!lane.read_payload({destination, frame.payload_bytes}, incoming.operation->traffic)) {
    return false;
  }
  incoming.bytes_left -= frame.payload_bytes;
  lane.finish_incoming();
  if (incoming.bytes_left == 0) {
    finish(std::move(incoming.operation), finished);
    peer.incoming.erase(found);
  }
  return true;
}

void Messages::watch(std::vector<pollfd>& descriptors) {
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    const int rank = static_cast<int>(i);
    const Channel& channel = channels_.at(Purpose::point_to_point, rank);
    if (!channel.connected()) continue;
    const bool reads = wants_to_read(rank, peers_[i]);
    for (const auto& lane : channel.lanes) {
      short events = reads ? POLLIN : 0;
      if (lane->sending() || !peers_[i].outgoing.empty()) events |= POLLOUT;
      if (events != 0) descriptors.push_back({lane->link().descriptor(), events, 0});
    }
  }
}

}  // namespace mccl::engine
