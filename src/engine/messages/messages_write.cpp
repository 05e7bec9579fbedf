// The half of Messages that writes: what goes next, and where.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/messages/messages.h"
#include "mccl/error.h"

namespace mccl::engine {

using transport::Purpose;

bool Messages::Peer::has_to_write() const {
  return !announcements.empty() || !granted.empty() ||
         std::any_of(lanes.begin(), lanes.end(),
                     [](const LaneState& state) { return state.writing.has_value(); });
}

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

/// What the peer sent before it left may still be read; an answer that only it could use is of no
/// use.
void Messages::give_up_writing(GroupRank rank, Peer& peer, const std::string& reason) {
  const auto matters = [](const Outgoing& outgoing) {
    return outgoing.frame.kind != FrameKind::credit;
  };
  const bool needed =
      !peer.granted.empty() ||
      std::any_of(peer.announcements.begin(), peer.announcements.end(), matters) ||
      std::any_of(peer.lanes.begin(), peer.lanes.end(),
                  [&](const LaneState& state) { return state.writing && matters(*state.writing); });
  if (needed) throw PeerError(fmt::format("rank {} is gone: {}", rank, reason));
  peer.announcements.clear();
  for (LaneState& state : peer.lanes) state.writing.reset();
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

/// Gives a free lane the next frame for it, and says which lane.
std::optional<std::size_t> Messages::load(Peer& peer, const Channel& channel) {
  std::optional<std::size_t> chosen;
  std::optional<Outgoing> next;
  if (!peer.announcements.empty() && !peer.lanes.front().writing) {
    chosen = 0;
    next = std::move(peer.announcements.front());
    peer.announcements.pop_front();
  } else if (!peer.granted.empty() && peer.granted.front().begun < peer.granted.front().pieces) {
    chosen = channel.free_rail();
    if (chosen) next = next_piece(peer);
  }
  if (!chosen) return std::nullopt;
  std::optional<Outgoing>& writing = peer.lanes[*chosen].writing;
  writing = std::move(next);
  channel.lanes[*chosen]->start(writing->frame, writing->payload, 0);
  return chosen;
}

Messages::Outgoing Messages::next_piece(Peer& peer) {
  Granted& granted = peer.granted.front();
  const std::size_t piece = granted.begun++;
  const ConstBuffer& data = granted.operation->input;
  Outgoing outgoing;
  outgoing.frame.kind = FrameKind::data;
  outgoing.frame.call = granted.operation->call;
  outgoing.frame.call.sequence = granted.number;
  outgoing.frame.message = static_cast<std::uint32_t>(piece);
  outgoing.payload = {static_cast<const std::byte*>(data.data) + piece * piece_bytes_,
                      piece_size(piece, data.bytes())};
  outgoing.operation = granted.operation;
  // Behind those that have pieces left; those that have none are last.
  const auto all_begun =
      std::find_if(std::next(peer.granted.begin()), peer.granted.end(),
                   [](const Granted& other) { return other.begun == other.pieces; });
  const bool last = granted.begun == granted.pieces;
  peer.granted.splice(last ? peer.granted.end() : all_begun, peer.granted, peer.granted.begin());
  return outgoing;
}

/// True when bytes went.
bool Messages::push(Peer& peer, LaneState& state, Lane& lane) {
  Traffic aside;
  Traffic& traffic = state.writing->operation ? state.writing->operation->traffic : aside;
  const std::uint64_t before = traffic.bytes_sent;
  const bool whole = lane.push(traffic);
  const bool moved = traffic.bytes_sent != before;
  if (whole) has_gone(peer, *std::exchange(state.writing, std::nullopt));
  return moved;
}

void Messages::has_gone(Peer& peer, Outgoing sent) {
  if (sent.frame.kind != FrameKind::data) {
    if (sent.operation) finish(std::move(sent.operation));
    return;
  }
  const auto granted = std::find_if(
      peer.granted.begin(), peer.granted.end(),
      [&sent](const Granted& other) { return other.number == sent.frame.call.sequence; });
  if (++granted->gone < granted->pieces) return;
  finish(std::move(granted->operation));
  peer.granted.erase(granted);
}

}  // namespace mccl::engine
