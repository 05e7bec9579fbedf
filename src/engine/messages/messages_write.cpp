// The part of Messages that writes frames. It decides which frame is sent next, and on which lane
// (link).
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/messages/messages.h"
#include "mccl/error.h"

namespace mccl::engine {

using transport::Purpose;

bool Messages::write_to(GroupRank rank, Peer& peer) {
  Channel& channel = channels_.at(Purpose::point_to_point, rank);
  if (channel.lost.empty()) {
    try {
      if (!channels_.open(Purpose::point_to_point, rank).connected()) return false;
      return write_lanes(peer, channel);
    } catch (const transport::LinkClosed& closed) {
      channel.lost = closed.what();
    }
  }
  give_up_writing(rank, peer, channel.lost);
  return true;
}

/// Throws MemberGone if a pending operation has to write to the peer, after reading the frames that
/// have arrived. Otherwise drops the queued frames: all of them return credit, which the peer no
/// longer needs. Messages that the peer sent before it left may still be read.
void Messages::give_up_writing(GroupRank rank, Peer& peer, const std::string& reason) {
  const auto matters = [](const Outgoing& outgoing) {
    return outgoing.frame.kind != FrameKind::credit;
  };
  const bool needed =
      !peer.granted.empty() ||
      std::any_of(peer.announcements.begin(), peer.announcements.end(), matters) ||
      std::any_of(peer.lanes.begin(), peer.lanes.end(),
                  [&](const LaneState& state) { return state.writing && matters(*state.writing); });
  if (needed) {
    // The peer may have pulled messages before it left; their sends succeed.
    while (read_from(rank, peer)) {
    }
    throw MemberGone(rank, reason, false);
  }
  peer.announcements.clear();
  for (LaneState& state : peer.lanes) state.writing.reset();
  peer.writing = 0;
}

bool Messages::write_lanes(Peer& peer, const Channel& channel) {
  peer.lanes.resize(channel.lanes.size());
  bool moved = false;
  for (std::size_t i = 0; i < peer.lanes.size(); ++i) {
    if (peer.lanes[i].writing) moved |= push(peer, peer.lanes[i], *channel.lanes[i]);
  }
  for (std::size_t written = 0; written < kPassBytes;) {
    const std::optional<std::size_t> rail = load(peer, channel);
    if (!rail) break;
    written += peer.lanes[*rail].writing->payload.size() + kFrameCost;
    moved |= push(peer, peer.lanes[*rail], *channel.lanes[*rail]);
  }
  return moved;
}

/// Starts the next frame on a free lane, and returns the lane's index. Returns nullopt if there is
/// no frame or no free lane.
std::optional<std::size_t> Messages::load(Peer& peer, const Channel& channel) {
  std::optional<std::size_t> chosen;
  std::optional<Outgoing> next;
  if (!peer.announcements.empty() && !peer.lanes.front().writing) {
    chosen = 0;
    next = peer.announcements.front();
    peer.announcements.pop_front();
    if (next->frame.kind == FrameKind::request && channel.lanes.front()->lends_memory())
      next->payload = lend(*peer.awaiting_grant.at(next->frame.call.sequence));
  } else if (!peer.granted.empty()) {
    chosen = channel.free_rail();
    if (chosen) next = next_piece(peer);
  }
  if (!chosen) return std::nullopt;
  std::optional<Outgoing>& writing = peer.lanes[*chosen].writing;
  writing = next;
  ++peer.writing;
  channel.lanes[*chosen]->start(writing->frame, writing->payload, 0);
  return chosen;
}

/// Lets the receiver pull the message. Returns the payload of the request.
std::span<const std::byte> Messages::lend(Operation& send) {
  if (send.in.bytes() == 0) return {};
  send.message.address = reinterpret_cast<std::uintptr_t>(send.in.data);
  return std::as_bytes(std::span(&send.message.address, 1));
}

Messages::Outgoing Messages::next_piece(Peer& peer) {
  Operation& send = *peer.granted.front();
  const std::size_t piece = send.message.begun++;
  Outgoing outgoing{.frame = {.kind = FrameKind::data, .call = send.call}};
  outgoing.frame.message = static_cast<std::uint32_t>(piece);
  outgoing.payload = {static_cast<const std::byte*>(send.in.data) + piece * piece_bytes_,
                      piece_size(piece, send.in.bytes())};
  outgoing.operation = &send;
  if (send.message.begun == send.message.pieces) {
    peer.granted.pop_front();
  } else {
    peer.granted.splice(peer.granted.end(), peer.granted, peer.granted.begin());
  }
  return outgoing;
}

/// Sends as much of the frame as the link takes. Returns true if bytes were sent.
bool Messages::push(Peer& peer, LaneState& state, Lane& lane) {
  Traffic aside;
  Traffic& traffic = state.writing->operation ? state.writing->operation->traffic : aside;
  const std::uint64_t before = traffic.bytes_sent;
  const bool whole = lane.push(traffic);
  const bool moved = traffic.bytes_sent != before;
  if (whole) {
    --peer.writing;
    has_gone(*std::exchange(state.writing, std::nullopt));
  }
  return moved;
}

void Messages::has_gone(const Outgoing& sent) {
  if (!sent.operation) return;
  Operation& operation = *sent.operation;
  const bool is_piece = sent.frame.kind == FrameKind::data;
  if (!is_piece || ++operation.message.ended == operation.message.pieces) finish(operation);
}

}  // namespace mccl::engine
