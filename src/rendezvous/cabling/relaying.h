// Relays connections between other ranks. A connection that arrives here for another rank is passed
// on to the next rank on the path, which follows from the agreed cabling.
#pragma once

#include <poll.h>

#include <cstddef>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/cabling.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rare_line.h"
#include "rendezvous/connections/dialing.h"
#include "transport/tcp/splice.h"

namespace mccl::rendezvous {

/// Maximum number of connections that this rank relays for one neighbour.
inline constexpr std::size_t kMostRelayed = 4096;

/// All connections that this rank relays. Not thread-safe. No call blocks.
class Relaying {
 public:
  /// `congestion_control` is the TCP algorithm that relayed connections use. Once one side has
  /// closed its connection, the other side has `patience` to receive the remaining bytes. The two
  /// ranks of a connection that breaks may replace it within `retry`.
  Relaying(std::string congestion_control, Clock::duration patience, Clock::duration retry, Log log)
      : congestion_control_(std::move(congestion_control)),
        patience_(patience),
        retry_(retry),
        log_(std::move(log)) {}

  /// Relays `socket`, a connection of rank `from`, to rank `to`. `onwards` is the dial to the next
  /// rank on the path. Closes the socket, with a warning, if kMostRelayed connections of `from` are
  /// relayed already.
  void pass_on(int from, int to, Socket socket, DialRequest onwards);
  void advance(Clock::time_point now);
  void watch(std::vector<pollfd>& descriptors) const;
  Clock::time_point next_deadline() const;

  void close() noexcept { connections_.clear(); }
  /// Closes the relayed connections that use `cable`, which has been cut.
  void drop(const Cable& cable);

  /// True if this rank relays a connection, or if two ranks may still replace one that broke.
  /// `has_ended` returns whether a rank's process is known to have ended.
  bool is_needed(Clock::time_point now, const std::function<bool(int rank)>& has_ended) const;

 private:
  struct RelayedConnection {
    int from;
    int to;
    Socket waiting;  ///< The incoming socket, until `splice` owns both sockets.
    Dial onwards;
    std::optional<transport::tcp::Splice> splice;
  };

  /// A connection that broke, and the time limit for its replacement.
  struct Broken {
    int from;
    int to;
    Clock::time_point until;
  };

  bool advance(RelayedConnection& connection, Clock::time_point now);

  const std::string congestion_control_;
  const Clock::duration patience_;
  const Clock::duration retry_;
  Log log_;
  RareLine too_many_;  // warnings of one kind each
  RareLine not_reached_;
  RareLine given_up_;
  std::list<RelayedConnection> connections_;
  std::vector<Broken> broken_;
};

}  // namespace mccl::rendezvous
