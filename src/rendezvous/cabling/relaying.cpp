#include "rendezvous/cabling/relaying.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "rendezvous/cabling/link_state.h"

namespace mccl::rendezvous {

void Relaying::pass_on(int from, int to, Socket socket, DialRequest onwards) {
  const auto is_of_from = [from](const RelayedConnection& each) { return each.from == from; };
  if (std::ranges::count_if(connections_, is_of_from) >= static_cast<long>(kMostRelayed)) {
    too_many_.write(
        log_, LogLevel::warn, Clock::now(),
        fmt::format("rank {} asked this rank to relay a connection to rank {}, but this rank "
                    "relays {} connections for it already, which is the limit; the connection is "
                    "closed. Use fewer groups, or add a cable",
                    from, to, kMostRelayed));
    return;
  }
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
    Socket further = connection.onwards.take_socket();
    if (!further) {
      // A refusal means that a process has ended, which all ranks are told.
      const bool is_refused = connection.onwards.last_error() == ECONNREFUSED;
      const std::string text =
          fmt::format("cannot relay the connection from rank {} to rank {}: {}", connection.from,
                      connection.to, connection.onwards.reason());
      if (is_refused) {
        log_.debug("{}", text);
      } else {
        not_reached_.write(log_, LogLevel::warn, now, text);
      }
      return false;
    }
    for (const auto* socket : {&connection.waiting, &further})
      (void)use_congestion_control(*socket, congestion_control_);
    std::erase_if(broken_, [&](const Broken& each) {
      return std::minmax(each.from, each.to) == std::minmax(connection.from, connection.to);
    });
    connection.splice.emplace(std::move(connection.waiting), std::move(further), patience_);
  }
  if (connection.splice->advance(now)) return true;
  if (connection.splice->is_broken()) {
    // Relays may wait for each other, and the end of a process must not take much longer.
    constexpr Clock::duration kLongestStay = 1s;
    std::erase_if(broken_, [now](const Broken& each) { return now >= each.until; });
    broken_.push_back({connection.from, connection.to, now + std::min(retry_, kLongestStay)});
  }
  if (connection.splice->gave_up()) {
    given_up_.write(
        log_, LogLevel::warn, now,
        fmt::format("this rank gave up a relayed connection between ranks {} and {}: one rank "
                    "closed it, and the other rank did not receive the remaining data within "
                    "{:.3g} s (MCCL_CONNECT_TIMEOUT)",
                    connection.from, connection.to,
                    std::chrono::duration<double>(patience_).count()));
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
  const auto goes_along = [&](const Socket& socket) {
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

bool Relaying::is_needed(Clock::time_point now,
                         const std::function<bool(int rank)>& has_ended) const {
  const auto is_established = [](const auto& each) { return each.splice.has_value(); };
  return std::ranges::any_of(connections_, is_established) ||
         std::ranges::any_of(broken_, [&](const Broken& each) {
           return now < each.until && !has_ended(each.from) && !has_ended(each.to);
         });
}

}  // namespace mccl::rendezvous
