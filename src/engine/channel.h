// The links of one group: for every peer and purpose, the parallel lanes that carry its messages.
#pragma once

#include <poll.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/lane.h"
#include "rendezvous/mesh.h"

namespace mccl::engine {

/// The way to one peer for one purpose.
struct Channel {
  std::vector<std::unique_ptr<Lane>> lanes;  ///< By rail; null until connected.
  bool requested = false;
  std::string lost;  ///< Why there will be no more links; empty while there may be.

  bool connected() const;
  /// Where the next message goes: of the lanes that have none to send, the one with least on its
  /// way, so that each carries what its path can. Nothing when all are busy.
  std::optional<std::size_t> free_rail() const;
};

/// Used under the engine's progress lock. Peers are ranks of the group.
class Channels {
 public:
  /// Asks for the links of a channel, once.
  using Request = std::function<void(rendezvous::Purpose purpose, int peer)>;

  Channels(int rank, int size, std::size_t payload_limit, bool crc, Request request);

  /// The channel, its links asked for. Throws PeerError when the peer is lost and it was never
  /// connected.
  Channel& open(rendezvous::Purpose purpose, int peer);
  /// The same without asking for links.
  Channel& at(rendezvous::Purpose purpose, int peer);

  void attach(rendezvous::Purpose purpose, int peer, std::uint8_t rail, std::uint8_t rails,
              std::unique_ptr<transport::Link> link);
  /// How a peer is lost: its end is told by every link, or it fell silent, which links may not
  /// tell.
  enum class Loss { told, silence };
  /// No more links to this peer.
  void lose(int peer, const std::string& reason, Loss loss = Loss::told);
  void close_all();
  /// The links, taken out.
  std::vector<std::unique_ptr<transport::Link>> take_links();
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(collective_.size()); }
  void for_each_lane(const std::function<void(Lane&)>& visit);

 private:
  const int rank_;
  const std::size_t payload_limit_;
  const bool crc_;
  const Request request_;
  std::vector<Channel> collective_;
  std::vector<Channel> point_to_point_;
};

}  // namespace mccl::engine
