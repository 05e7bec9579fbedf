// Where a rank can be reached, as published through the store.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mccl::rendezvous {

struct Endpoint {
  int rank = -1;
  /// Ranks with the same host string share a kernel and a network namespace: loopback reaches them.
  std::string host;
  std::uint16_t port = 0;
  /// Numeric addresses, best first.
  std::vector<std::string> addresses;
  /// The addresses were listed by the user: each is a rail of its own.
  bool listed = false;

  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

/// Text of at most a few KiB; parse throws InvalidArgument for anything that serialise cannot have
/// written.
std::string serialise(const Endpoint& endpoint);
Endpoint parse_endpoint(std::string_view text);

}  // namespace mccl::rendezvous
