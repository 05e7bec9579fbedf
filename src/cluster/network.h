// IPv4 addresses and networks as values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mccl::cluster {

struct Ipv4 {
  std::uint32_t bits = 0;  ///< In the order of this machine.

  friend auto operator<=>(const Ipv4&, const Ipv4&) = default;  // NOLINT(modernize-use-nullptr)
};

/// Four decimal numbers with dots, and nothing else.
std::optional<Ipv4> parse_ipv4(std::string_view text);
std::string text_of(Ipv4 address);

/// An address together with the network that it lies in; the address of a network itself has no
/// bits behind the prefix.
struct Network {
  Ipv4 address = {};
  int prefix_bits = 32;

  Ipv4 first() const;
  Ipv4 last() const;
  bool holds(Ipv4 other) const;
  bool overlaps(const Network& other) const;
  /// Without the bits behind the prefix.
  Network base() const { return {first(), prefix_bits}; }

  friend auto operator<=>(const Network&,
                          const Network&) = default;  // NOLINT(modernize-use-nullptr)
};

/// Whether it lies in a range that is not routed on the Internet: those of RFC 1918, and those for
/// carriers (100.64.0.0/10) and for benchmarks (198.18.0.0/15).
bool is_private(const Network& network);

/// "10.0.0.1/24", or an address alone for one of 32 bits.
std::optional<Network> parse_network(std::string_view text);
std::string text_of(const Network& network);

/// 255.255.255.252 for 30 bits.
Ipv4 mask_of(int prefix_bits);
/// The bits of a mask, "0xfffffffc" (as ifconfig of macOS has it) or "255.255.255.252". Nothing for
/// one with holes.
std::optional<int> prefix_of_mask(std::string_view text);

}  // namespace mccl::cluster
