// IPv6 addresses and networks as values.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mccl::cluster {

/// An address and the prefix length of its network.
struct Network6 {
  std::array<std::uint8_t, 16> address = {};
  int prefix_bits = 128;

  /// Clears the bits after the prefix.
  Network6 base() const;
  /// Returns the address in its canonical short form, without the prefix length.
  std::string address_text() const;

  friend auto operator<=>(const Network6&,
                          const Network6&) = default;  // NOLINT(modernize-use-nullptr)
};

/// Parses "fd00::1/64". An address without a prefix length gets 128 bits. Rejects zones.
std::optional<Network6> parse_network6(std::string_view text);
std::string text_of(const Network6& network);

}  // namespace mccl::cluster
