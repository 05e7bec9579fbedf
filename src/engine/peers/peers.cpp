#include "engine/peers/peers.h"

#include <fmt/format.h>

#include <algorithm>

#include "mccl/error.h"

namespace mccl::engine {
namespace {

/// From the end of a relayed connection until what ended it is known here.
constexpr std::chrono::milliseconds kNewsOnTheWay{500};

}  // namespace

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
  for (WorldRank rank(0); rank < peers_.end_rank(); ++rank) receive(rank, on_message, on_lost);
  for (WorldRank rank(0); rank < peers_.end_rank(); ++rank) judge(rank, on_lost);
}

void Peers::receive(WorldRank rank, const OnMessage& on_message, const OnLost& on_lost) {
  Peer& peer = peers_[rank];
  try {
    while (peer.control) {
      const std::optional<ControlMessage> message = peer.control->receive();
      if (!message) break;
      if (message->kind == ControlKind::goodbye) {
        const std::string& why = message->failure.reason;
        peer.farewell = why.empty() ? "it has left the job" : "it gave this rank up: " + why;
      } else {
        on_message(rank, *message);
      }
    }
    return;
  } catch (const transport::LinkClosed& closed) {
    if (peer.relay && peer.farewell.empty()) {
      peer.control.reset();
      peer.judged_at = Clock::now() + kNewsOnTheWay;
      return;
    }
    peer.lost = !peer.farewell.empty()
                    ? peer.farewell
                    : fmt::format("it died or its host cannot be reached ({})", closed.what());
  } catch (const CorruptionError& garbage) {
    peer.lost = fmt::format("what it says cannot be understood ({})", garbage.what());
  }
  peer.control.reset();
  on_lost(rank, peer.lost);
}

/// Of a peer behind a relay: is it the relay that is gone?
void Peers::judge(WorldRank rank, const OnLost& on_lost) {
  Peer& peer = peers_[rank];
  if (!peer.judged_at) return;
  const std::string& of_relay = lost(*peer.relay);
  if (of_relay.empty() && Clock::now() < *peer.judged_at) return;
  peer.judged_at.reset();
  peer.lost = of_relay.empty()
                  ? fmt::format("its connection through rank {} has ended: it died, or a rank or a "
                                "cable on the way to it is gone",
                                *peer.relay)
                  : fmt::format("it cannot be reached any more without rank {}, and of that one: {}",
                                *peer.relay, of_relay);
  on_lost(rank, peer.lost);
}

Clock::time_point Peers::next_deadline() const {
  Clock::time_point next = Clock::time_point::max();
  for (const Peer& peer : peers_) next = std::min(next, peer.judged_at.value_or(next));
  return next;
}

void Peers::watch(std::vector<pollfd>& descriptors) const {
  for (const Peer& peer : peers_) {
    if (!peer.control) continue;
    const short events = peer.control->has_unsent() ? POLLIN | POLLOUT : POLLIN;
    descriptors.push_back({peer.control->descriptor(), events, 0});
  }
}

}  // namespace mccl::engine
