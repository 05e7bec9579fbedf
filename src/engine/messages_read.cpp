// The half of Messages that reads. What a peer states is checked before it is used: each number
// against what this rank has said or posted itself.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/messages.h"
#include "mccl/error.h"

namespace mccl::engine {
namespace {

using rendezvous::Purpose;

[[noreturn]] void refuse(int rank, const std::string& what) {
  throw CorruptionError(fmt::format("rank {} {}: the network or that rank is broken", rank, what));
}

}  // namespace

bool Messages::wants_to_read(int rank, const Peer& peer) const {
  if (!peer.awaiting_grant.empty() || !peer.incoming.empty()) return true;
  return std::any_of(posted_.begin(), posted_.end(), [rank](const auto& operation) {
    return operation->call.peer < 0 || operation->call.peer == rank;
  });
}

/// Of several links that end, each may have brought what is still needed.
bool Messages::read_from(int rank, Peer& peer) {
  Channel& channel = channels_.at(Purpose::point_to_point, rank);
  std::string ended;
  if (channel.connected()) {
    peer.rails.resize(channel.lanes.size());
    bool moved = false;
    for (std::size_t i = 0; i < peer.rails.size(); ++i) {
      try {
        moved |= read_lane(rank, peer, peer.rails[i], *channel.lanes[i]);
      } catch (const transport::LinkClosed& closed) {
        ended = closed.what();
      }
    }
    if (moved || ended.empty()) return moved;
  }
  const std::string& reason = channel.lost.empty() ? ended : channel.lost;
  if (reason.empty()) return false;
  const bool only_this_peer_will_do =
      !peer.awaiting_grant.empty() || !peer.incoming.empty() ||
      std::any_of(posted_.begin(), posted_.end(),
                  [rank](const auto& operation) { return operation->call.peer == rank; });
  if (only_this_peer_will_do) throw PeerError(fmt::format("rank {} is gone: {}", rank, reason));
  channel.lost = reason;
  channel.lanes.clear();
  for (Rail& rail : peer.rails) rail.reading = {};
  return false;
}

bool Messages::read_lane(int rank, Peer& peer, Rail& rail, Lane& lane) {
  bool moved = false;
  for (std::size_t taken = 0; taken < kPassBytes && wants_to_read(rank, peer);) {
    if (rail.between_messages()) {
      Traffic aside;
      const Frame* frame = lane.incoming(aside);
      if (!frame) break;
      taken += frame->payload_bytes + kFrameCost;
      take_header(rank, peer, rail, lane);
      moved = true;
    }
    if (rail.between_messages()) continue;
    const std::size_t before = lane.payload_received();
    const bool whole = take_payload(rank, peer, rail, lane);
    moved |= whole || lane.payload_received() != before;
    if (!whole) break;
  }
  return moved;
}

/// Leaves the rail between messages where the header is all there is.
void Messages::take_header(int rank, Peer& peer, Rail& rail, Lane& lane) {
  const Frame frame = *lane.header();
  check_form(rank, peer, rail, frame);
  switch (frame.kind) {
    case FrameKind::eager:
    case FrameKind::request:
      return take_announcement(rank, peer, rail, lane);
    case FrameKind::data:
      return begin_piece(rank, peer, rail, frame);
    case FrameKind::grant:
      lane.finish_incoming();
      return take_grant(rank, peer, frame);
    case FrameKind::credit:
      lane.finish_incoming();
      return take_credit(rank, peer, frame);
    case FrameKind::collective:
      break;
  }
}

/// What can be said of a frame by itself.
void Messages::check_form(int rank, const Peer& peer, const Rail& rail, const Frame& frame) const {
  const bool is_announcement = frame.kind == FrameKind::eager || frame.kind == FrameKind::request;
  const bool has_payload = frame.kind == FrameKind::eager || frame.kind == FrameKind::data;
  if (frame.kind == FrameKind::collective) refuse(rank, "sent a collective's data as a message");
  if (frame.kind != FrameKind::data && &rail != &peer.rails.front()) {
    refuse(rank, "announced a message on a link that carries pieces only");
  }
  if (!has_payload && frame.payload_bytes != 0) {
    refuse(rank,
           fmt::format("sent {} bytes with an announcement that has none", frame.payload_bytes));
  }
  if ((is_announcement || has_payload) &&
      (frame.call.collective != Collective::send || frame.call.root != -1)) {
    refuse(rank, fmt::format("sent a message that says it is {}", describe(frame.call)));
  }
  if (frame.kind != FrameKind::eager) return;
  const std::size_t element_bytes = size_of(frame.call.dtype);
  if (frame.payload_bytes > eager_bytes_ || frame.payload_bytes % element_bytes != 0 ||
      frame.payload_bytes / element_bytes != frame.call.count) {
    refuse(rank, fmt::format("sent {} bytes as a message of {} {}, which may have {} at most",
                             frame.payload_bytes, frame.call.count, name_of(frame.call.dtype),
                             eager_bytes_));
  }
}

void Messages::take_announcement(int rank, Peer& peer, Rail& rail, Lane& lane) {
  const Frame frame = *lane.header();
  if (frame.call.sequence != peer.next_announced) {
    refuse(rank, fmt::format("sent message number {} where number {} was to come",
                             frame.call.sequence, peer.next_announced));
  }
  ++peer.next_announced;
  if (frame.kind == FrameKind::request) {
    lane.finish_incoming();
    return take_request(rank, frame);
  }
  peer.credit_lent += frame.payload_bytes + kEagerOverhead;
  if (peer.credit_lent > kEagerCredit) {
    refuse(rank, fmt::format("sent messages that nobody asked for beyond its credit of {} bytes",
                             kEagerCredit));
  }
  rail.reading = Unexpected{rank, frame, std::vector<std::byte>(frame.payload_bytes)};
}

void Messages::take_request(int rank, const Frame& request) {
  if (std::shared_ptr<Operation> receive = match(rank, request)) {
    grant(rank, request, std::move(receive));
  } else {
    unexpected_.push_back({rank, request, {}});
  }
}

void Messages::take_grant(int rank, Peer& peer, const Frame& grant) {
  const auto found = peer.awaiting_grant.find(grant.call.sequence);
  if (found == peer.awaiting_grant.end()) {
    refuse(rank, fmt::format("asked for message number {}, which was not announced to it",
                             grant.call.sequence));
  }
  std::shared_ptr<Operation> operation = std::move(found->second);
  peer.awaiting_grant.erase(found);
  const std::size_t pieces = pieces_of(operation->input.bytes());
  if (pieces == 0) return finish(std::move(operation));
  // Before those that wait only for their last pieces to be gone.
  const auto all_begun =
      std::find_if(peer.granted.begin(), peer.granted.end(),
                   [](const Granted& other) { return other.begun == other.pieces; });
  peer.granted.insert(all_begun, Granted{grant.call.sequence, std::move(operation), pieces});
}

void Messages::take_credit(int rank, Peer& peer, const Frame& credit) {
  if (credit.call.count > peer.credit_used) {
    refuse(rank, fmt::format("returned a credit of {} bytes where {} were lent", credit.call.count,
                             peer.credit_used));
  }
  peer.credit_used -= credit.call.count;
}

void Messages::begin_piece(int rank, Peer& peer, Rail& rail, const Frame& frame) {
  const auto found = peer.incoming.find(frame.call.sequence);
  if (found == peer.incoming.end()) {
    refuse(rank, fmt::format("sent a piece of message number {}, which was not asked for",
                             frame.call.sequence));
  }
  Incoming& incoming = found->second;
  const Call& call = incoming.operation->call;
  const std::size_t piece = frame.message;
  if (frame.call.count != call.count || frame.call.dtype != call.dtype ||
      frame.call.tag != call.tag || piece >= incoming.begun.size() ||
      frame.payload_bytes != piece_size(piece, incoming.operation->output.bytes())) {
    refuse(rank, fmt::format("sent {} bytes as piece {} of {}, which does not fit into {}",
                             frame.payload_bytes, piece, describe(frame.call), describe(call)));
  }
  if (incoming.begun[piece]) {
    refuse(rank, fmt::format("sent piece {} for {} twice", piece, describe(call)));
  }
  incoming.begun[piece] = true;
  rail.reading = ArrivingPiece{frame.call.sequence, piece};
}

/// True when it is complete.
bool Messages::take_payload(int rank, Peer& peer, Rail& rail, Lane& lane) {
  return std::holds_alternative<Unexpected>(rail.reading) ? take_eager(rank, rail, lane)
                                                          : take_piece(peer, rail, lane);
}

bool Messages::take_eager(int rank, Rail& rail, Lane& lane) {
  Traffic aside;
  if (!lane.read_payload(std::get<Unexpected>(rail.reading).payload, aside)) return false;
  lane.finish_incoming();
  Unexpected message = std::get<Unexpected>(std::exchange(rail.reading, {}));
  if (std::shared_ptr<Operation> receive = match(rank, message.frame)) {
    deliver(message, std::move(receive));
  } else {
    unexpected_.push_back(std::move(message));
  }
  return true;
}

bool Messages::take_piece(Peer& peer, Rail& rail, Lane& lane) {
  const ArrivingPiece arriving = std::get<ArrivingPiece>(rail.reading);
  const auto found = peer.incoming.find(arriving.message);
  Incoming& incoming = found->second;
  const Buffer& output = incoming.operation->output;
  const std::span<std::byte> destination(
      static_cast<std::byte*>(output.data) + arriving.piece * piece_bytes_,
      piece_size(arriving.piece, output.bytes()));
  if (!lane.read_payload(destination, incoming.operation->traffic)) return false;
  lane.finish_incoming();
  rail.reading = {};
  if (--incoming.pieces_left == 0) {
    finish(std::move(incoming.operation));
    peer.incoming.erase(found);
  }
  return true;
}

}  // namespace mccl::engine
