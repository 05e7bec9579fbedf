#include "cluster/network6.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/value_text.h"

namespace mccl::cluster {
namespace {

constexpr int kAddress6Bits = 128;

}  // namespace

Network6 Network6::base() const {
  Network6 network = *this;
  for (int byte = 0; byte < 16; ++byte) {
    const int kept = std::clamp(prefix_bits - 8 * byte, 0, 8);
    network.address[static_cast<std::size_t>(byte)] &= static_cast<std::uint8_t>(0xFF00 >> kept);
  }
  return network;
}

std::string Network6::address_text() const {
  std::array<char, INET6_ADDRSTRLEN> text = {};
  ::inet_ntop(AF_INET6, address.data(), text.data(), text.size());
  return text.data();
}

std::optional<Network6> parse_network6(std::string_view text) {
  const std::size_t slash = text.find('/');
  const std::string address(text.substr(0, slash));
  Network6 network;
  if (address.size() >= INET6_ADDRSTRLEN ||
      ::inet_pton(AF_INET6, address.c_str(), network.address.data()) != 1)
    return {};
  if (slash == text.npos) return network;
  const auto bits = parse_integer(text.substr(slash + 1));
  if (!bits || *bits < 0 || *bits > kAddress6Bits) return {};
  network.prefix_bits = static_cast<int>(*bits);
  return network;
}

std::string text_of(const Network6& network) {
  return fmt::format("{}/{}", network.address_text(), network.prefix_bits);
}

}  // namespace mccl::cluster
