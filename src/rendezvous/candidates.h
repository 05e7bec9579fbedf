// The ways to a peer, best first.
#pragma once

#include <functional>
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
  /// Of this host, that leads there; empty where it is not known.
  std::string interface = {};
  /// Nothing that the systems say tells it from the first, which goes through another interface.
  bool equals_first = false;
  /// Somebody has taken a connection there.
  bool met = false;

  std::string text() const;
};

/// One path of a pair among `rails`.
struct RailOfPair {
  int index = 0;
  int count = 1;
};

/// Where the kernel sends what goes to an address from: transport::tcp::route_source.
using RouteSource =
    std::function<std::optional<transport::tcp::Address>(const transport::tcp::Address&)>;

/// Of one subnet with this host first, and among those by what this host reaches them through: a
/// cable before the air, the faster before the slower one, and then as the peer has ordered them.
///
/// Those that are as good as the first stand behind it, each through an interface of its own.
///
/// With several rails the first candidate is the rail's own path; the others are what is left when
/// that one fails. Asks the kernel for routes; sends nothing.
std::vector<Candidate> candidates_for(const Endpoint& peer, const Endpoint& self, RailOfPair rail,
                                      const std::vector<transport::tcp::Interface>& interfaces,
                                      const RouteSource& route = transport::tcp::route_source);

}  // namespace mccl::rendezvous
