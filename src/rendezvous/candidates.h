// The ways to a peer, best first.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rendezvous/endpoint.h"
#include "transport/tcp/interfaces.h"

namespace mccl::rendezvous {

struct Candidate {
  transport::tcp::Address to;
  std::optional<transport::tcp::Address> from;  ///< Local address to bind; else the route's.
  std::string outcome;  ///< What the last attempt ended with; empty before the first.

  std::string text() const;
};

/// One path of a pair among `rails`.
struct RailOfPair {
  int index = 0;
  int count = 1;
};

/// With several rails the first candidate is the rail's own path; the others are what is left when
/// that one fails. Asks the kernel for routes; sends nothing.
std::vector<Candidate> candidates_for(const Endpoint& peer, const Endpoint& self, RailOfPair rail,
                                      const std::vector<transport::tcp::Interface>& interfaces);

}  // namespace mccl::rendezvous
