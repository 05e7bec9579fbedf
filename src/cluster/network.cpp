#include "cluster/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>

namespace mccl::cluster {
namespace {

constexpr int kAddressBits = 32;

std::optional<std::uint32_t> number(std::string_view text, int base, std::uint32_t most) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || value > most)
    return {};
  return value;
}

}  // namespace

std::optional<Ipv4> parse_ipv4(std::string_view text) {
  Ipv4 address;
  for (int part = 0; part < 4; ++part) {
    const std::size_t dot = part < 3 ? text.find('.') : text.size();
    if (dot > 3) return {};  // Also true for npos.
    const auto value = number(text.substr(0, dot), 10, 255);
    if (!value) return {};
    address.bits = address.bits << 8 | *value;
    text.remove_prefix(part < 3 ? dot + 1 : dot);
  }
  return address;
}

std::string text_of(Ipv4 address) {
  return fmt::format("{}.{}.{}.{}", address.bits >> 24, address.bits >> 16 & 255,
                     address.bits >> 8 & 255, address.bits & 255);
}

Ipv4 mask_of(int prefix_bits) {
  return {prefix_bits == 0 ? 0 : ~std::uint32_t{0} << (kAddressBits - prefix_bits)};
}

Ipv4 Network::first() const { return {address.bits & mask_of(prefix_bits).bits}; }
Ipv4 Network::last() const { return {address.bits | ~mask_of(prefix_bits).bits}; }

bool Network::holds(Ipv4 other) const { return first() <= other && other <= last(); }

bool Network::overlaps(const Network& other) const {
  return first() <= other.last() && other.first() <= last();
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
  const auto address = parse_ipv4(text.substr(0, slash));
  if (!address) return {};
  if (slash == text.npos) return Network{*address, kAddressBits};
  const auto bits = number(text.substr(slash + 1), 10, kAddressBits);
  if (!bits) return {};
  return Network{*address, static_cast<int>(*bits)};
}

std::string text_of(const Network& network) {
  return fmt::format("{}/{}", text_of(network.address), network.prefix_bits);
}

std::optional<int> prefix_of_mask(std::string_view text) {
  std::optional<std::uint32_t> mask;
  if (text.starts_with("0x")) {
    mask = number(text.substr(2), 16, ~std::uint32_t{0});
  } else if (const auto address = parse_ipv4(text)) {
    mask = address->bits;
  }
  if (!mask || std::countl_one(*mask) + std::countr_zero(*mask) < kAddressBits) return {};
  return std::countl_one(*mask);
}

}  // namespace mccl::cluster
