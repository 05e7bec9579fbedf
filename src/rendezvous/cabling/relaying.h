// Relays connections between other ranks. A connection that arrives here for another rank is passed
// on to the next rank on the path. The path follows from the cabling, on which all ranks have
// agreed.
#pragma once

#include <poll.h>

#include <list>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/cabling.h"
#include "base/clock.h"
#include "base/log.h"
#include "rendezvous/connections/dialing.h"
#include "transport/tcp/splice.h"

namespace mccl::rendezvous {

/// All connections that this rank relays. Not thread-safe. No call blocks.
class Relaying {
 public:
  /// `congestion_control` is the TCP algorithm that relayed connections use. Once one side has
  /// closed its connection, the other side has `patience` to receive the remaining bytes.
  Relaying(std::string congestion_control, Clock::duration patience, Log log)
      : congestion_control_(std::move(congestion_control)),
        patience_(patience),
        log_(std::move(log)) {}

  /// Relays `socket`, a connection of rank `from`, to rank `to`. `onwards` is the dial to the next
  /// rank on the path.
  void pass_on(int from, int to, transport::tcp::Socket socket, DialRequest onwards);
  void advance(Clock::time_point now);
  void watch(std::vector<pollfd>& descriptors) const;
  Clock::time_point next_deadline() const;

  void close() noexcept { connections_.clear(); }
  /// Closes the relayed connections that use `cable`, which has been cut.
  void drop(const Cable& cable);

  /// Returns the ranks at the two ends of the connections that this rank relays. A connection
  /// counts only once it is established to the next rank on its path.
  std::set<int> users() const;

 private:
  struct RelayedConnection {
    int from;
    int to;
    transport::tcp::Socket waiting;  ///< The incoming socket, until `splice` owns both sockets.
    Dial onwards;
    std::optional<transport::tcp::Splice> splice;
  };

  bool advance(RelayedConnection& connection, Clock::time_point now);

  const std::string congestion_control_;
  const Clock::duration patience_;
  Log log_;
  std::list<RelayedConnection> connections_;
};

}  // namespace mccl::rendezvous
