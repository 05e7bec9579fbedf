#include "engine/peers/peers.h"

#include <fmt/format.h>

#include <algorithm>

#include "mccl/error.h"

namespace mccl::engine {

void Peers::connect(WorldRank rank, std::unique_ptr<transport::Link> link, bool is_relayed) {
  peers_[rank].control = std::make_unique<ControlConnection>(std::move(link));
  peers_[rank].is_relayed = is_relayed;
}

void Peers::send(WorldRank rank, const ControlMessage& message) noexcept {
  Peer& to = peers_[rank];
  if (to.control && to.unable.empty()) to.unable = to.control->send(message);
}

bool Peers::have_all_arrived() const {
  return std::all_of(peers_.begin(), peers_.end(),
                     [](const Peer& peer) { return !peer.control || peer.has_arrived; });
}

void Peers::flush() noexcept {
  for (const Peer& peer : peers_) {
    if (peer.control && peer.control->has_unsent()) peer.control->flush();
  }
}

void Peers::leave() noexcept {
  for (WorldRank rank(0); rank < peers_.end_rank(); ++rank)
    send(rank, {.kind = ControlKind::goodbye});
  for (Peer& peer : peers_) peer.control.reset();
}

void Peers::give_up(WorldRank rank, const std::string& reason, bool has_ended) {
  send(rank, {.kind = ControlKind::goodbye, .failure = {.reason = reason}});
  Peer& given_up = peers_[rank];
  given_up.control.reset();
  given_up.lost = reason;
  given_up.has_ended = has_ended;
}

bool Peers::receive(const OnMessage& on_message, const OnLost& on_lost) {
  bool more = false;
  for (WorldRank rank(0); rank < peers_.end_rank(); ++rank) {
    Peer& peer = peers_[rank];
    if (!peer.control) continue;
    std::string lost;
    try {
      more |= hear(rank, peer, on_message);
      if (peer.unable.empty()) continue;
      lost = peer.unable;
    } catch (const transport::LinkClosed& closed) {
      peer.has_ended = peer.farewell.empty() && closed.by_peer() && !peer.is_relayed;
      lost = !peer.farewell.empty()
                 ? peer.farewell
                 : fmt::format("it died or its host cannot be reached ({})", closed.what());
    } catch (const CorruptionError& garbage) {
      lost = fmt::format("its messages are malformed ({})", garbage.what());
    }
    peer.lost = std::move(lost);
    peer.control.reset();
    on_lost(rank, peer.lost);
  }
  return more;
}

/// Handles up to kMessagesAtATime messages from the peer. Consumes a message only after it has been
/// handled, so that no message is lost if memory runs out. Returns true if more messages may be
/// waiting.
bool Peers::hear(WorldRank rank, Peer& peer, const OnMessage& on_message) {
  for (int heard = 0; heard < kMessagesAtATime; ++heard) {
    const std::optional<ControlMessage> message = peer.control->receive();
    if (!message) return false;
    if (message->kind == ControlKind::goodbye) {
      const std::string& why = message->failure.reason;
      peer.farewell = why.empty() ? "it has left the job"
                                  : "it gave up this rank, about which it reports: " + why;
      peer.has_left = why.empty();
      peer.control->expect_end();
    } else if (message->kind == ControlKind::arrived) {
      peer.has_arrived = true;
    } else {
      on_message(rank, *message);
      if (!peer.control) return false;
    }
    peer.control->consume();
  }
  return true;
}

void Peers::watch(Sleep& sleep) const {
  for (const Peer& peer : peers_) {
    if (!peer.control) continue;
    const short events = peer.control->has_unsent() ? POLLIN | POLLOUT : POLLIN;
    sleep.watch(peer.control->link(), events);
  }
}

}  // namespace mccl::engine
