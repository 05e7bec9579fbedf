#include "engine/peers.h"

#include <fmt/format.h>

#include "mccl/error.h"

namespace mccl::engine {

void Peers::connect(int rank, std::unique_ptr<transport::Link> link) {
  peers_[static_cast<std::size_t>(rank)].control =
      std::make_unique<ControlConnection>(std::move(link));
}

void Peers::send(int rank, const ControlMessage& message) {
  const auto& control = peer(rank).control;
  if (!control) return;
  control->send(message);
  control->flush();  // a closed connection shows itself to receive()
}

void Peers::flush() {
  for (const Peer& peer : peers_) {
    if (peer.control && peer.control->has_unsent()) peer.control->flush();
  }
}

void Peers::leave() {
  ControlMessage goodbye;
  goodbye.kind = ControlKind::goodbye;
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) send(static_cast<int>(rank), goodbye);
  for (Peer& peer : peers_) peer.control.reset();
}

void Peers::receive(const OnMessage& on_message, const OnLost& on_lost) {
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    Peer& peer = peers_[i];
    if (!peer.control) continue;
    const int rank = static_cast<int>(i);
    try {
      while (const std::optional<ControlMessage> message = peer.control->receive()) {
        if (message->kind == ControlKind::goodbye) {
          peer.said_goodbye = true;
        } else {
          on_message(rank, *message);
        }
      }
    } catch (const Error& closed) {
      peer.control.reset();
      peer.lost = peer.said_goodbye
                      ? "it has left the job"
                      : fmt::format("it died or its host cannot be reached ({})", closed.what());
      on_lost(rank, peer.lost);
    }
  }
}

void Peers::watch(std::vector<pollfd>& descriptors) const {
  for (const Peer& peer : peers_) {
    if (!peer.control) continue;
    const short events = peer.control->has_unsent() ? POLLIN | POLLOUT : POLLIN;
    descriptors.push_back({peer.control->descriptor(), events, 0});
  }
}

}  // namespace mccl::engine
