// A proven connection along one cable. Neighbours use it to exchange what they know of all cables,
// and afterwards to show that they are alive.
#pragma once

#include <poll.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "rendezvous/cabling/link_state.h"
#include "transport/tcp/socket.h"

namespace mccl::rendezvous {

/// Returns the address without its port and scope. A scope is meaningful only on its own host.
/// Without it, both ranks get the same text for a cable.
std::string bare_host(const transport::tcp::Address& address);

/// One connection between this rank and a neighbour, along one cable. Not thread-safe. No call
/// blocks.
class Trunk {
 public:
  /// `socket` connects `self` and `peer`.
  Trunk(transport::tcp::Socket socket, int self, int peer, int size, Clock::time_point now);

  int peer() const { return peer_; }
  /// The cable; equal on both ranks.
  const Cable& cable() const { return cable_; }
  /// The two ends as this host names them, with scopes and ports.
  const transport::tcp::Address& here() const { return here_; }
  const transport::tcp::Address& there() const { return there_; }

  void tell(const CableNews& news);
  /// Queues a rank's sighting, unless this version or a newer one has been sent already.
  void tell_once(const Sighting& sighting);
  /// Sends queued messages and appends those received. Throws CorruptionError if one is invalid.
  /// Returns false once the connection has ended.
  bool advance(Clock::time_point now, std::vector<CableNews>& news);
  Clock::time_point heard_at() const { return heard_at_; }

  /// True if no more messages are expected from the peer, because it misbehaves or knows of a
  /// fault.
  bool given_up = false;

  void watch(std::vector<pollfd>& descriptors) const;

 private:
  bool flush();
  bool receive();

  transport::tcp::Socket socket_;
  int peer_;
  int size_;
  transport::tcp::Address here_;
  transport::tcp::Address there_;
  Cable cable_;
  Clock::time_point heard_at_;
  std::map<int, std::uint32_t> told_;  ///< Last version sent of each rank's sighting.
  Bytes input_;
  Bytes output_;
};

}  // namespace mccl::rendezvous
