#include "rendezvous/tcp_transport.h"

#include <fmt/format.h>

#include "mccl/error.h"

namespace mccl::rendezvous {

using transport::LinkKey;
using transport::Making;

Making TcpTransport::dial(WorldRank peer, const LinkKey& key, Clock::time_point deadline) {
  mesh_->dial(peer.number(), key, deadline);
  return {};
}

Making TcpTransport::hear(WorldRank peer, const LinkKey&, std::span<const std::byte>) {
  throw CorruptionError(
      fmt::format("rank {} sent set-up data for a tcp link, which has none", peer));
}

void TcpTransport::cancel(WorldRank peer, const LinkKey& key) { mesh_->cancel(peer.number(), key); }

void TcpTransport::progress(std::vector<transport::LinkEvent>& events) {
  std::vector<MeshEvent> ended;
  mesh_->progress(ended);
  for (MeshEvent& event : ended) {
    if (event.key.purpose == transport::Purpose::control)
      continue;  // Control connections were made at start-up.
    events.push_back(
        {WorldRank(event.peer), event.key, std::move(event.link), std::move(event.reason)});
  }
}

std::vector<transport::Transport::LostPeer> TcpTransport::take_lost() {
  std::vector<LostPeer> lost;
  for (CutOff& cut : mesh_->take_cut_off())
    lost.push_back({WorldRank(cut.peer), fmt::format("it is reached through {}", cut.why)});
  return lost;
}

}  // namespace mccl::rendezvous
