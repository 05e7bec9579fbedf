// IPv4 addresses and networks as values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mccl::cluster {

struct Ipv4 {
  std::uint32_t bits = 0;  ///< An IPv4 address, in host byte order.

  friend auto operator<=>(const Ipv4&, const Ipv4&) = default;  // NOLINT(modernize-use-nullptr)
};

/// Parses four decimal numbers separated by dots. Returns nothing for any other text.
std::optional<Ipv4> parse_ipv4(std::string_view text);
std::string text_of(Ipv4 address);

/// An address and the prefix length of its network. In a pure network address, the bits after the
/// prefix are zero.
struct Network {
  Ipv4 address = {};
  int prefix_bits = 32;

  Ipv4 first() const;
  Ipv4 last() const;
  bool holds(Ipv4 other) const;
  bool overlaps(const Network& other) const;
  /// Clears the bits after the prefix.
  Network base() const { return {first(), prefix_bits}; }

  friend auto operator<=>(const Network&,
                          const Network&) = default;  // NOLINT(modernize-use-nullptr)
};

/// True if the network lies in a range that is not routed on the Internet: RFC 1918, carrier-grade
/// NAT (100.64.0.0/10) or benchmarks (198.18.0.0/15).
bool is_private(const Network& network);

/// Parses "10.0.0.1/24". An address without a prefix length gets 32 bits.
std::optional<Network> parse_network(std::string_view text);
std::string text_of(const Network& network);

/// Returns the netmask, such as 255.255.255.252 for 30 bits.
Ipv4 mask_of(int prefix_bits);
/// Returns the prefix length of a netmask, either "255.255.255.252" or "0xfffffffc" (the notation
/// of macOS's ifconfig). Empty if the mask is invalid or not contiguous.
std::optional<int> prefix_of_mask(std::string_view text);

}  // namespace mccl::cluster
