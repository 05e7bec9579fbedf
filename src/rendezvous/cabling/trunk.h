// A proven connection along one cable, on which neighbours tell each other of all cables, and from
// then on that they are there.
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

/// Of an address, the same at both ends of a cable: scopes are names of each host's own.
std::string bare_host(const transport::tcp::Address& address);

/// Not thread-safe. No call blocks.
class Trunk {
 public:
  /// Between `self` and `peer`.
  Trunk(transport::tcp::Socket socket, int self, int peer, int size, Clock::time_point now);

  int peer() const { return peer_; }
  /// As seen from here; equal at both ends.
  const Cable& cable() const { return cable_; }
  /// The two ends as they are here, with their scopes and ports.
  const transport::tcp::Address& here() const { return here_; }
  const transport::tcp::Address& there() const { return there_; }

  void tell(const CableNews& news);
  /// A rank's sighting, unless this or a newer one has been told already.
  void tell_once(const Sighting& sighting);
  /// What has come since. Throws CorruptionError. False once the connection has ended.
  bool advance(Clock::time_point now, std::vector<CableNews>& news);
  Clock::time_point heard_at() const { return heard_at_; }

  /// Nothing more is expected of its rank: it misbehaves, or knows of a fault.
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
  std::map<int, std::uint32_t> told_;  ///< Of each rank, the version of its sighting.
  Bytes input_;
  Bytes output_;
};

}  // namespace mccl::rendezvous
