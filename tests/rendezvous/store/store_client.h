// A proven connection to rank 0's store, on which a test may send anything.
#pragma once

#include <string>

#include "rendezvous/connections/conversation.h"
#include "rendezvous/connections/dialing.h"
#include "transport/tcp/address.h"

namespace mccl::rendezvous {

/// Connects as rank 1 to the store at this host's `port`. Returns an empty socket if the handshake
/// fails, with the reason in `trouble`.
inline transport::tcp::Socket connect_to_store(std::uint16_t port, const std::string& key,
                                               std::string& trouble) {
  DialRequest request;
  request.self = {1, 0, key, {}};
  request.peer = 0;
  request.key = {0, transport::Purpose::store, 0};
  request.deadline = Clock::now() + std::chrono::seconds(20);
  request.candidates = {{*transport::tcp::Address::parse_numeric("127.0.0.1", port), {}, {}}};
  request.once = true;
  Dial dial(std::move(request));
  while (!dial.advance(Clock::now())) {
    std::vector<pollfd> watched;
    dial.watch(watched);
    ::poll(watched.data(), watched.size(), milliseconds_until(dial.next_deadline()));
  }
  trouble = dial.first_choice().outcome;
  return dial.take_socket();
}

}  // namespace mccl::rendezvous
