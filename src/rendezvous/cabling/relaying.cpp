#include "rendezvous/cabling/relaying.h"

#include <algorithm>
#include <string>
#include <utility>

#include "rendezvous/cabling/link_state.h"
#include "transport/tcp/socket.h"

namespace mccl::rendezvous {

void Relaying::pass_on(int from, int to, transport::tcp::Socket socket, DialRequest onwards) {
  log_.debug("relays a connection from rank {} to rank {} through rank {}", from, to, onwards.peer);
  passages_.push_back({from, to, std::move(socket), Dial(std::move(onwards)), {}});
}

void Relaying::advance(Clock::time_point now) {
  passages_.remove_if([&](Passage& passage) { return !advance(passage, now); });
}

/// Returns false once the passage has ended.
bool Relaying::advance(Passage& passage, Clock::time_point now) {
  if (!passage.splice) {
    if (!passage.onwards.advance(now)) return true;
    transport::tcp::Socket further = passage.onwards.take_socket();
    if (!further) {
      log_.warn("cannot relay the connection from rank {} to rank {}: {}", passage.from, passage.to,
                passage.onwards.reason());
      return false;
    }
    for (const auto* socket : {&passage.waiting, &further})
      (void)transport::tcp::use_congestion_control(*socket, congestion_control_);
    passage.splice.emplace(std::move(passage.waiting), std::move(further), patience_);
  }
  if (passage.splice->advance(now)) return true;
  if (passage.splice->gave_up()) {
    log_.warn(
        "gave up a relayed connection between ranks {} and {}: one of them closed it, and the "
        "other has not received all its data within {:.3g} s (MCCL_CONNECT_TIMEOUT)",
        passage.from, passage.to, std::chrono::duration<double>(patience_).count());
  }
  return false;
}

void Relaying::watch(std::vector<pollfd>& descriptors) const {
  for (const Passage& passage : passages_) {
    if (passage.splice) {
      passage.splice->watch(descriptors);
    } else {
      passage.onwards.watch(descriptors);
    }
  }
}

Clock::time_point Relaying::next_deadline() const {
  Clock::time_point next = Clock::time_point::max();
  for (const Passage& passage : passages_) {
    next = std::min(next,
                    passage.splice ? passage.splice->retry_at() : passage.onwards.next_deadline());
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
  passages_.remove_if([&](const Passage& passage) {
    if (!passage.splice) return goes_along(passage.waiting);
    return goes_along(passage.splice->one()) || goes_along(passage.splice->other());
  });
}

std::set<int> Relaying::users() const {
  std::set<int> ranks;
  for (const Passage& passage : passages_) {
    if (passage.splice) ranks.insert({passage.from, passage.to});
  }
  return ranks;
}

}  // namespace mccl::rendezvous
