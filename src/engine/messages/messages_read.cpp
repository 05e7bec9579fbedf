// The part of Messages that reads frames. Before a number from a peer is used, it is checked
// against the messages that this rank has announced and the receives that it has posted.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/messages/messages.h"
#include "mccl/error.h"

namespace mccl::engine {
namespace {

using transport::Purpose;

[[noreturn]] void refuse(GroupRank rank, const std::string& what) {
  throw CorruptionError(
      fmt::format("rank {} {}: the network damages data, or the ranks run different builds of MCCL",
                  rank, what));
}

}  // namespace

/// True if a pending operation needs a frame from this peer.
bool Messages::needs(const Peer& peer) const {
  return peer.posted > 0 || !peer.awaiting_grant.empty() || !peer.incoming.empty() ||
         !peer.pulls.empty();
}

bool Messages::wants_to_read(const Peer& peer) const {
  return needs(peer) || posted_for_any_ > 0 || blocked_ || peer.reads_ahead;
}

void Messages::drain(GroupRank rank) {
  if (!channels_.at(Purpose::point_to_point, rank).lost.empty()) return;
  peers_[rank].draining = true;
  note_ahead(peers_[rank]);
}

void Messages::take_in(GroupRank rank, std::uint64_t number) {
  if (!channels_.at(Purpose::point_to_point, rank).connected()) return;
  peers_[rank].wanted = std::max(peers_[rank].wanted, number);
  note_ahead(peers_[rank]);
}

void Messages::note_ahead(Peer& peer) noexcept {
  const bool ahead = peer.draining || peer.taken < peer.wanted;
  reading_ahead_ += ahead;
  reading_ahead_ -= std::exchange(peer.reads_ahead, ahead);
}

void Messages::end_reading_ahead(Peer& peer) noexcept {
  peer.draining = false;
  peer.wanted = 0;
  note_ahead(peer);
}

/// Reads from all lanes before it throws: even if several links end, each may have delivered data
/// that is still needed.
bool Messages::read_from(GroupRank rank, Peer& peer) {
  Channel& channel = channels_.at(Purpose::point_to_point, rank);
  std::string ended;
  std::size_t open = 0;
  if (channel.connected()) {
    peer.lanes.resize(channel.lanes.size());
    bool moved = false;
    for (std::size_t i = 0; i < peer.lanes.size(); ++i) {
      try {
        moved |= read_lane(rank, peer, peer.lanes[i], *channel.lanes[i]);
        if (i == 0 && !peer.pulls.empty()) moved |= pull(rank, peer, *channel.lanes[i]);
        ++open;
      } catch (const transport::LinkClosed& closed) {
        ended = closed.what();
      }
    }
    if (moved || ended.empty() || (peer.draining && open > 0)) return moved;
  }
  const std::string& reason = channel.lost.empty() ? ended : channel.lost;
  if (reason.empty()) return false;
  if (needs(peer)) throw MemberGone(rank, reason, true);
  channel.lost = reason;
  channel.lanes.clear();
  end_reading_ahead(peer);
  for (LaneState& state : peer.lanes) state.reading = {};
  return false;
}

bool Messages::read_lane(GroupRank rank, Peer& peer, LaneState& state, Lane& lane) {
  bool moved = false;
  for (std::size_t taken = 0; taken < kPassBytes && wants_to_read(peer);) {
    if (state.between_messages()) {
      Traffic aside;
      const Frame* frame = lane.incoming(aside);
      if (!frame) break;
      taken += frame->payload_bytes + kFrameCost;
      take_header(rank, peer, state, lane);
      moved = true;
    }
    if (state.between_messages()) continue;
    const std::size_t before = lane.payload_received();
    const bool whole = take_payload(rank, peer, state, lane);
    moved |= whole || lane.payload_received() != before;
    if (!whole) break;
  }
  return moved;
}

/// Handles the header of a frame. Afterwards, between_messages() is true if no payload follows.
void Messages::take_header(GroupRank rank, Peer& peer, LaneState& state, Lane& lane) {
  const Frame frame = *lane.header();
  check_form(rank, peer, state, frame);
  switch (frame.kind) {
    case FrameKind::eager:
    case FrameKind::request:
      return take_announcement(rank, peer, state, lane);
    case FrameKind::data:
      return begin_piece(rank, peer, state, frame);
    case FrameKind::grant:
      lane.finish_incoming();
      return take_grant(rank, peer, frame);
    case FrameKind::credit:
      lane.finish_incoming();
      return take_credit(rank, peer, frame);
    case FrameKind::pulled:
      lane.finish_incoming();
      return take_pulled(rank, peer, frame, lane);
    case FrameKind::collective:
      break;
  }
}

/// Checks the properties of a frame that can be checked without the pending operations.
void Messages::check_form(GroupRank rank, const Peer& peer, const LaneState& state,
                          const Frame& frame) const {
  const bool is_announcement = frame.kind == FrameKind::eager || frame.kind == FrameKind::request;
  const bool has_payload = frame.kind == FrameKind::eager || frame.kind == FrameKind::data;
  if (frame.kind == FrameKind::collective) refuse(rank, "sent a collective's data as a message");
  if (frame.kind != FrameKind::data && &state != &peer.lanes.front()) {
    refuse(rank, "announced a message on a link that carries only pieces of messages");
  }
  const bool has_address =
      frame.kind == FrameKind::request && frame.payload_bytes == sizeof(MessageProgress::address);
  if (!has_payload && !has_address && frame.payload_bytes != 0) {
    refuse(rank, fmt::format("sent an announcement with a payload of {} bytes, but announcements "
                             "have no payload",
                             frame.payload_bytes));
  }
  if ((is_announcement || has_payload) &&
      (frame.call.collective != Collective::send || frame.call.root != -1)) {
    refuse(rank, fmt::format("sent a message whose header describes {}", describe(frame.call)));
  }
  if (frame.kind != FrameKind::eager) return;
  const std::size_t element_bytes = size_of(frame.call.dtype);
  if (frame.payload_bytes > eager_bytes_ || frame.payload_bytes % element_bytes != 0 ||
      frame.payload_bytes / element_bytes != frame.call.count) {
    refuse(rank,
           fmt::format(
               "sent a payload of {} bytes for a message of {} {}, but both must have the same "
               "size, and at most {} bytes may be sent before the receiver asks for them",
               frame.payload_bytes, frame.call.count, name_of(frame.call.dtype), eager_bytes_));
  }
}

void Messages::take_announcement(GroupRank rank, Peer& peer, LaneState& state, Lane& lane) {
  const Frame frame = *lane.header();
  count_announcement(rank, peer, frame);
  if (frame.kind == FrameKind::request && frame.payload_bytes == 0) {
    lane.finish_incoming();
    return match_or_keep(rank, peer, {rank, frame, {}});
  }
  state.reading = Unexpected{rank, frame, std::vector<std::byte>(frame.payload_bytes)};
}

void Messages::count_announcement(GroupRank rank, Peer& peer, const Frame& frame) {
  if (frame.call.sequence != peer.next_announced) {
    refuse(rank, fmt::format("sent message number {} where number {} was expected",
                             frame.call.sequence, peer.next_announced));
  }
  ++peer.next_announced;
  if (frame.kind == FrameKind::eager) lend_credit(rank, peer, frame.payload_bytes);
}

/// Counts the credit that an eager message of `bytes` bytes uses.
void Messages::lend_credit(GroupRank rank, Peer& peer, std::size_t bytes) {
  peer.credit_lent += bytes + kEagerOverhead;
  if (peer.credit_lent > kEagerCredit) {
    refuse(rank, fmt::format("sent messages that were not asked for, beyond its credit of {} bytes",
                             kEagerCredit));
  }
}

void Messages::match_or_keep(GroupRank rank, Peer& peer, Unexpected message) {
  Operation* const receive = match(rank, message.frame);
  if (!receive) {
    if (++peer.kept > kMostKept) {
      refuse(rank,
             fmt::format("sent more than {} messages for which no receive was posted", kMostKept));
    }
    keep(std::move(message));
  } else {
    message.frame.kind == FrameKind::request ? accept(message, *receive)
                                             : deliver(message, *receive);
  }
  ++peer.taken;
  note_ahead(peer);
}

void Messages::take_grant(GroupRank rank, Peer& peer, const Frame& grant) {
  const auto found = peer.awaiting_grant.find(grant.call.sequence);
  if (found == peer.awaiting_grant.end()) {
    refuse(rank, fmt::format("asked for message number {}, which was not announced to it",
                             grant.call.sequence));
  }
  Operation& send = *found->second;
  send.message.pieces = pieces_of(send.in.bytes());
  if (send.message.pieces > 0) peer.granted.push_back(&send);
  peer.awaiting_grant.erase(found);
  if (send.message.pieces == 0) finish(send);
  announce_held(peer);
}

void Messages::take_credit(GroupRank rank, Peer& peer, const Frame& credit) {
  if (credit.call.count > peer.credit_used) {
    refuse(rank, fmt::format("returned {} bytes of credit, but only {} are in use",
                             credit.call.count, peer.credit_used));
  }
  peer.credit_used -= credit.call.count;
}

void Messages::take_pulled(GroupRank rank, Peer& peer, const Frame& pulled, Lane& lane) {
  const auto found = peer.awaiting_grant.find(pulled.call.sequence);
  // While the request is being sent, the lane still reads the address, which the send owns.
  const std::optional<Outgoing>& writing = peer.lanes.front().writing;
  const bool requests = writing && writing->frame.kind == FrameKind::request &&
                        writing->frame.call.sequence == pulled.call.sequence;
  if (found == peer.awaiting_grant.end() || found->second->message.address == 0 || requests) {
    refuse(rank, fmt::format("has copied message number {}, whose address was not sent to it",
                             pulled.call.sequence));
  }
  Operation& send = *found->second;
  peer.awaiting_grant.erase(found);
  lane.count_pulled(send.in.bytes(), send.traffic);
  finish(send);
  announce_held(peer);
}

/// Copies bytes of the oldest message that is to be pulled. A large message takes several calls, so
/// that other work is not delayed. Returns true.
bool Messages::pull(GroupRank rank, Peer& peer, Lane& lane) {
  Operation& receive = *peer.pulls.front();
  MessageProgress& message = receive.message;
  const std::size_t all = receive.out.bytes();
  const std::size_t n = std::min(kPassBytes, all - message.pulled);
  const std::span<std::byte> to(static_cast<std::byte*>(receive.out.data) + message.pulled, n);
  if (!lane.pull(message.address + message.pulled, to, receive.traffic)) {
    peer.pulls.pop_front();
    grant(rank, receive);
    return true;
  }
  message.pulled += n;
  if (message.pulled < all) return true;
  peer.pulls.pop_front();
  Outgoing done{.frame = {.kind = FrameKind::pulled}, .operation = &receive};
  done.frame.call.sequence = receive.call.sequence;
  peer.announcements.push_back(done);
  return true;
}

void Messages::begin_piece(GroupRank rank, Peer& peer, LaneState& state, const Frame& frame) {
  const auto found = peer.incoming.find(frame.call.sequence);
  if (found == peer.incoming.end()) {
    refuse(rank, fmt::format("sent a piece of message number {}, which was not asked for",
                             frame.call.sequence));
  }
  Operation& receive = *found->second;
  const Call& call = receive.call;
  const std::size_t piece = frame.message;
  if (frame.call.count != call.count || frame.call.dtype != call.dtype ||
      frame.call.tag != call.tag || piece >= receive.message.pieces ||
      frame.payload_bytes != piece_size(piece, receive.out.bytes())) {
    refuse(rank,
           fmt::format("sent piece {} of {} with {} bytes, which does not match the pending {}",
                       piece, describe(frame.call), frame.payload_bytes, describe(call)));
  }
  if (receive.message.arriving[piece]) {
    refuse(rank, fmt::format("sent piece {} for {} twice", piece, describe(call)));
  }
  receive.message.arriving[piece] = true;
  state.reading = ArrivingPiece{frame.call.sequence, piece};
}

/// Reads the payload bytes that have arrived. Returns true if the payload is complete.
bool Messages::take_payload(GroupRank rank, Peer& peer, LaneState& state, Lane& lane) {
  return std::holds_alternative<Unexpected>(state.reading) ? take_announced(rank, peer, state, lane)
                                                           : take_piece(peer, state, lane);
}

bool Messages::take_announced(GroupRank rank, Peer& peer, LaneState& state, Lane& lane) {
  Traffic aside;
  if (!lane.read_payload(std::get<Unexpected>(state.reading).payload, aside)) return false;
  lane.finish_incoming();
  match_or_keep(rank, peer, std::get<Unexpected>(std::exchange(state.reading, {})));
  return true;
}

bool Messages::take_piece(Peer& peer, LaneState& state, Lane& lane) {
  const ArrivingPiece arriving = std::get<ArrivingPiece>(state.reading);
  const auto found = peer.incoming.find(arriving.message);
  Operation& receive = *found->second;
  const std::span<std::byte> destination(
      static_cast<std::byte*>(receive.out.data) + arriving.piece * piece_bytes_,
      piece_size(arriving.piece, receive.out.bytes()));
  if (!lane.read_payload(destination, receive.traffic)) return false;
  lane.finish_incoming();
  state.reading = {};
  if (++receive.message.ended == receive.message.pieces) {
    peer.incoming.erase(found);
    finish(receive);
  }
  return true;
}

}  // namespace mccl::engine
