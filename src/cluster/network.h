// IPv4 and IPv6 addresses and networks as values.
#pragma once

#include <compare>
#include <optional>
#include <string>
#include <string_view>

namespace mccl::cluster {

__extension__ using AddressBits = unsigned __int128;

struct IpAddress {
  AddressBits bits = 0;  ///< In host byte order. An IPv4 address takes the low 32 bits.
  bool is_ipv6 = false;

  constexpr int width() const { return is_ipv6 ? 128 : 32; }

  friend auto operator<=>(const IpAddress&,
                          const IpAddress&) = default;  // NOLINT(modernize-use-nullptr)
};

/// Parses "10.0.0.1" or "fd00::1". Empty for any other text, such as an address with a zone.
std::optional<IpAddress> parse_address(std::string_view text);
/// Returns the canonical short form.
std::string text_of(const IpAddress& address);

/// An address and the prefix length of its network. In a pure network address, the bits after the
/// prefix are zero.
struct Network {
  IpAddress address = {};
  int prefix_bits = 32;

  IpAddress first() const;
  IpAddress last() const;
  bool holds(const IpAddress& other) const;
  bool overlaps(const Network& other) const;
  /// Clears the bits after the prefix.
  Network base() const { return {first(), prefix_bits}; }
  /// True if the two addresses differ, but lie in the same network.
  bool is_beside(const Network& other) const;

  friend auto operator<=>(const Network&,
                          const Network&) = default;  // NOLINT(modernize-use-nullptr)
};

/// The range of self-assigned IPv4 addresses, which systems such as macOS may change at any time.
inline constexpr Network kSelfAssigned = {{0xA9FE0000}, 16};

/// True if the network lies in an IPv4 range that is not routed on the Internet: RFC 1918,
/// carrier-grade NAT (100.64.0.0/10) or benchmarks (198.18.0.0/15).
bool is_private(const Network& network);

/// Parses "10.0.0.1/24" or "fd00::1/64". Without a prefix length, the network is the single
/// address. Empty for any other text.
std::optional<Network> parse_network(std::string_view text);
std::string text_of(const Network& network);

/// Returns the IPv4 netmask of the prefix, such as 255.255.255.252 for 30 bits.
IpAddress mask_of(int prefix_bits);
/// Returns the prefix length of a netmask, either "255.255.255.252" or "0xfffffffc" (the notation
/// of macOS's ifconfig). Empty if the text is not a netmask, or if the one bits of the netmask are
/// not contiguous.
std::optional<int> prefix_of_mask(std::string_view text);

}  // namespace mccl::cluster
