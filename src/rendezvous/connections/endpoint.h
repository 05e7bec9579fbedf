// The addresses at which a rank can be reached, as published through the store.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mccl::rendezvous {

struct Endpoint {
  int rank = -1;
  /// Ranks with equal host strings share a kernel and a network namespace, so loopback joins them.
  std::string host;
  std::uint16_t port = 0;
  /// Numeric addresses, best first.
  std::vector<std::string> addresses;
  /// True if the user listed the addresses explicitly. Each address is then a separate rail.
  bool listed = false;

  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

/// Convert an endpoint to JSON of at most a few KiB, and back. parse_endpoint() throws
/// InvalidArgument for text that serialise() cannot have written.
std::string serialise(const Endpoint& endpoint);
Endpoint parse_endpoint(std::string_view text);

}  // namespace mccl::rendezvous
