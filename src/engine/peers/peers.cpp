#include "engine/peers/peers.h"

#include <fmt/format.h>

#include <algorithm>

#include "mccl/error.h"

namespace mccl::engine {

void Peers::connect(WorldRank rank, std::unique_ptr<transport::Link> link) {
  peers_[rank].control = std::make_unique<ControlConnection>(std::move(link));
}

void Peers::send(WorldRank rank, const ControlMessage& message) {
  const auto& control = peer(rank).control;
  if (!control) return;
  control->send(message);
  control->flush();  // a closed connection shows itself to receive()
}

void Peers::send_to_all(const ControlMessage& message) {
  for (WorldRank rank(0); rank < peers_.end_rank(); ++rank) send(rank, message);
}

bool Peers::have_all_arrived() const {
  return std::all_of(peers_.begin(), peers_.end(),
                     [](const Peer& peer) { return !peer.control || peer.has_arrived; });
}

void Peers::flush() {
  for (const Peer& peer : peers_) {
    if (peer.control && peer.control->has_unsent()) peer.control->flush();
  }
}

void Peers::leave() {
  ControlMessage goodbye;
  goodbye.kind = ControlKind::goodbye;
  send_to_all(goodbye);
  for (Peer& peer : peers_) peer.control.reset();
}

void Peers::give_up(WorldRank rank, const std::string& reason) {
  ControlMessage goodbye;
  goodbye.kind = ControlKind::goodbye;
  goodbye.failure.reason = reason;
  send(rank, goodbye);
  Peer& given_up = peers_[rank];
  given_up.control.reset();
  given_up.lost = reason;
}

void Peers::receive(const OnMessage& on_message, const OnLost& on_lost) {
  for (WorldRank rank(0); rank < peers_.end_rank(); ++rank) {
    Peer& peer = peers_[rank];
    try {
      while (peer.control) {
        const std::optional<ControlMessage> message = peer.control->receive();
        if (!message) break;
        if (message->kind == ControlKind::goodbye) {
          const std::string& why = message->failure.reason;
          peer.has_left = why.empty();
          peer.farewell = why.empty() ? "it has left the job" : "it gave this rank up: " + why;
        } else if (message->kind == ControlKind::arrived) {
          peer.has_arrived = true;
        } else {
          on_message(rank, *message);
        }
      }
      continue;
    } catch (const transport::LinkClosed& closed) {
      peer.lost = !peer.farewell.empty()
                      ? peer.farewell
                      : fmt::format("it died or its host cannot be reached ({})", closed.what());
    } catch (const CorruptionError& garbage) {
      peer.lost = fmt::format("what it says cannot be understood ({})", garbage.what());
    }
    peer.control.reset();
    on_lost(rank, peer.lost);
  }
}

void Peers::watch(Sleep& sleep) const {
  for (const Peer& peer : peers_) {
    if (!peer.control) continue;
    const short events = peer.control->has_unsent() ? POLLIN | POLLOUT : POLLIN;
    sleep.watch(peer.control->link(), events);
  }
}

}  // namespace mccl::engine
