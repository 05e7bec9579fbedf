// The addresses that a rank publishes through the store, and the possible paths to a peer.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/connections/names.h"

namespace mccl::rendezvous {

struct Endpoint {
  int rank = -1;
  /// Ranks with equal host strings share a kernel and a network namespace, so loopback joins them.
  std::string host;
  std::uint16_t port = 0;
  /// Numeric addresses, best first.
  std::vector<std::string> addresses;
  /// True if the user listed the addresses. Each then gets its own rail (parallel connection).
  bool listed = false;
  /// Name of the host in messages. A word of printable ASCII characters.
  std::string host_name = "unnamed";

  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

/// serialise() converts an endpoint to JSON of at most a few KiB, and parse_endpoint() reads it.
/// parse_endpoint() throws InvalidArgument for text that serialise() cannot have written.
std::string serialise(const Endpoint& endpoint);
Endpoint parse_endpoint(std::string_view text);

struct Candidate {
  Address to;
  /// Local address to bind; if empty, the kernel chooses it.
  std::optional<Address> from;
  std::string outcome;  ///< Result of the last attempt; empty before the first attempt.
  /// Interface of this host through which `to` is reached; empty if unknown.
  std::string interface = {};
  /// True if this candidate uses another interface than the first candidate, and neither is better
  /// as far as the system reports.
  bool equals_first = false;
  /// True if a connection to this address has been accepted.
  bool met = false;

  std::string text() const;
};

/// One of the `count` rails (parallel connections) of a pair of ranks.
struct RailOfPair {
  int index = 0;
  int count = 1;
};

/// The loopback addresses of this host that are up, each with `port`.
std::vector<Address> loopbacks(std::uint16_t port, const Interfaces& interfaces);

/// Type of transport::tcp::route_source: returns the local address from which the kernel sends to a
/// given address.
using RouteSource = std::function<std::optional<Address>(const Address&)>;

/// Returns the candidates in order of preference: addresses in a subnet of this host first; then by
/// the medium, cable before wireless and faster before slower; then in the peer's order. Candidates
/// that are as good as the first follow directly behind it, one per interface.
///
/// With several rails, the first candidate is the path assigned to `rail`, and the other candidates
/// are used if that path fails. Queries the kernel's routing table; sends nothing.
std::vector<Candidate> candidates_for(const Endpoint& peer, const Endpoint& self, RailOfPair rail,
                                      const Interfaces& interfaces,
                                      const RouteSource& route = transport::tcp::route_source);

}  // namespace mccl::rendezvous
