#include "cluster/network.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstdint>

#include "base/value_text.h"

namespace mccl::cluster {
namespace {

/// Returns a mask of the bits that follow the prefix, in an address of `width` bits.
AddressBits host_bits(int width, int prefix_bits) {
  const int count = width - prefix_bits;
  return count == 128 ? ~AddressBits{0} : (AddressBits{1} << count) - 1;
}

}  // namespace

std::optional<IpAddress> parse_address(std::string_view text) {
  std::array<unsigned char, 16> bytes = {};
  IpAddress address{.bits = 0, .is_ipv6 = text.find(':') != text.npos};
  const std::string copy(text.substr(0, INET6_ADDRSTRLEN));
  if (::inet_pton(address.is_ipv6 ? AF_INET6 : AF_INET, copy.c_str(), bytes.data()) != 1) return {};
  for (int byte = 0; byte < address.width() / 8; ++byte)
    address.bits = address.bits << 8 | bytes[static_cast<std::size_t>(byte)];
  return address;
}

std::string text_of(const IpAddress& address) {
  std::array<unsigned char, 16> bytes = {};
  for (int byte = 0; byte < address.width() / 8; ++byte)
    bytes[static_cast<std::size_t>(byte)] =
        static_cast<unsigned char>(address.bits >> (address.width() - 8 - 8 * byte));
  std::array<char, INET6_ADDRSTRLEN> text = {};
  ::inet_ntop(address.is_ipv6 ? AF_INET6 : AF_INET, bytes.data(), text.data(), text.size());
  return text.data();
}

IpAddress mask_of(int prefix_bits) { return {host_bits(32, 0) & ~host_bits(32, prefix_bits)}; }

IpAddress Network::first() const {
  return {address.bits & ~host_bits(address.width(), prefix_bits), address.is_ipv6};
}

IpAddress Network::last() const {
  return {address.bits | host_bits(address.width(), prefix_bits), address.is_ipv6};
}

bool Network::holds(const IpAddress& other) const { return overlaps({other, other.width()}); }

bool Network::overlaps(const Network& other) const {
  return address.is_ipv6 == other.address.is_ipv6 && first() <= other.last() &&
         other.first() <= last();
}

bool Network::is_beside(const Network& other) const {
  return prefix_bits < address.width() && base() == other.base() && address != other.address;
}

bool is_private(const Network& network) {
  constexpr std::array<Network, 5> kRanges = {Network{{0x0A000000}, 8}, Network{{0xAC100000}, 12},
                                              Network{{0xC0A80000}, 16}, Network{{0x64400000}, 10},
                                              Network{{0xC6120000}, 15}};
  return std::ranges::any_of(kRanges, [&](const Network& range) {
    return range.prefix_bits <= network.prefix_bits && range.holds(network.address);
  });
}

std::optional<Network> parse_network(std::string_view text) {
  const std::size_t slash = text.find('/');
  const auto address = parse_address(text.substr(0, slash));
  if (!address) return {};
  if (slash == text.npos) return Network{*address, address->width()};
  const auto bits = parse_integer(text.substr(slash + 1));
  if (!bits || *bits < 0 || *bits > address->width()) return {};
  return Network{*address, static_cast<int>(*bits)};
}

std::string text_of(const Network& network) {
  return fmt::format("{}/{}", text_of(network.address), network.prefix_bits);
}

std::optional<int> prefix_of_mask(std::string_view text) {
  std::uint32_t mask = 0;
  if (text.starts_with("0x")) {
    const auto [end, error] = std::from_chars(text.data() + 2, text.data() + text.size(), mask, 16);
    if (error != std::errc() || end != text.data() + text.size()) return {};
  } else if (const auto address = parse_address(text); address && !address->is_ipv6) {
    mask = static_cast<std::uint32_t>(address->bits);
  } else {
    return {};
  }
  if (std::countl_one(mask) + std::countr_zero(mask) < 32) return {};
  return std::countl_one(mask);
}

}  // namespace mccl::cluster
