// IPv6 addresses and networks as values.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mccl::cluster {

/// An address together with the network that it lies in.
struct Network6 {
  std::array<std::uint8_t, 16> address = {};
  int prefix_bits = 128;

  /// Without the bits behind the prefix.
  Network6 base() const;
  /// The address alone, as it is written everywhere: the shortest way.
  std::string address_text() const;

  friend auto operator<=>(const Network6&,
                          const Network6&) = default;  // NOLINT(modernize-use-nullptr)
};

/// "fd00::1/64", or an address alone for one of 128 bits; without a zone.
std::optional<Network6> parse_network6(std::string_view text);
std::string text_of(const Network6& network);

}  // namespace mccl::cluster
