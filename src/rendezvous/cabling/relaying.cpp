#include "rendezvous/cabling/relaying.h"

#include <algorithm>
#include <string>
#include <utility>

#include "rendezvous/cabling/link_state.h"
#include "transport/tcp/socket.h"

namespace mccl::rendezvous {

void Relaying::pass_on(int from, int to, transport::tcp::Socket socket, DialRequest onwards) {
  log_.debug("this rank relays a connection from rank {} to rank {} through rank {}", from, to,
             onwards.peer);
  connections_.push_back({from, to, std::move(socket), Dial(std::move(onwards)), {}});
}

void Relaying::advance(Clock::time_point now) {
  connections_.remove_if([&](RelayedConnection& connection) { return !advance(connection, now); });
}

/// Returns false once the relayed connection has ended, so that it must be removed.
bool Relaying::advance(RelayedConnection& connection, Clock::time_point now) {
  if (!connection.splice) {
    if (!connection.onwards.advance(now)) return true;
    transport::tcp::Socket further = connection.onwards.take_socket();
    if (!further) {
      log_.warn("cannot relay the connection from rank {} to rank {}: {}", connection.from,
                connection.to, connection.onwards.reason());
      return false;
    }
    for (const auto* socket : {&connection.waiting, &further})
      (void)transport::tcp::use_congestion_control(*socket, congestion_control_);
    connection.splice.emplace(std::move(connection.waiting), std::move(further), patience_);
  }
  if (connection.splice->advance(now)) return true;
  if (connection.splice->gave_up()) {
    log_.warn(
        "this rank gave up a relayed connection between ranks {} and {}: one rank closed it, and "
        "the other rank did not receive the remaining data within {:.3g} s (MCCL_CONNECT_TIMEOUT)",
        connection.from, connection.to, std::chrono::duration<double>(patience_).count());
  }
  return false;
}

void Relaying::watch(std::vector<pollfd>& descriptors) const {
  for (const RelayedConnection& connection : connections_) {
    if (connection.splice) {
      connection.splice->watch(descriptors);
    } else {
      connection.onwards.watch(descriptors);
    }
  }
}

Clock::time_point Relaying::next_deadline() const {
  Clock::time_point next = Clock::time_point::max();
  for (const RelayedConnection& connection : connections_) {
    next = std::min(next, connection.splice ? connection.splice->retry_at()
                                            : connection.onwards.next_deadline());
  }
  return next;
}

void Relaying::drop(const Cable& cable) {
  const auto goes_along = [&](const transport::tcp::Socket& socket) {
    const std::string here = bare_host(socket.local());
    const std::string there = bare_host(socket.remote());
    return (here == cable.at_a && there == cable.at_b) ||
           (here == cable.at_b && there == cable.at_a);
  };
  connections_.remove_if([&](const RelayedConnection& connection) {
    if (!connection.splice) return goes_along(connection.waiting);
    return goes_along(connection.splice->one()) || goes_along(connection.splice->other());
  });
}

std::set<int> Relaying::users() const {
  std::set<int> ranks;
  for (const RelayedConnection& connection : connections_) {
    if (connection.splice) ranks.insert({connection.from, connection.to});
  }
  return ranks;
}

}  // namespace mccl::rendezvous
