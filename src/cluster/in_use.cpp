// Extracts the addresses that a host uses from its system files and the output of its programs.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "cluster/read_facts.h"

namespace mccl::cluster {
namespace {

/// Maximum number of addresses in HostFacts::in_use. Further ones, such as those of a server's
/// clients, are dropped.
constexpr std::size_t kMostInUse = 2000;

/// Removes the port from an address such as "192.168.1.9.443", the notation of macOS's netstat.
std::string_view without_port(std::string_view text) {
  if (std::ranges::count(text, '.') != 4) return text;
  return text.substr(0, text.rfind('.'));
}

/// Adds a private network unless it is already listed or the list is full.
void keep(HostFacts& facts, const Network& network, const std::string& by) {
  if (!is_private(network) || facts.in_use.size() == kMostInUse) return;
  const auto same = [&](const InUse& other) { return other.network == network; };
  if (std::ranges::none_of(facts.in_use, same)) facts.in_use.push_back({network, by});
}

/// Parses an IPv4 address as /proc/net/tcp prints it: eight hex digits of the value that a
/// little-endian machine reads from its bytes in network order.
std::optional<Ipv4> ipv4_of_hex(std::string_view text) {
  std::uint32_t bits = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bits, 16);
  if (text.size() != 8 || error != std::errc() || end != text.data() + text.size()) return {};
  return Ipv4{__builtin_bswap32(bits)};
}

}  // namespace

void note_in_use(HostFacts& facts, std::string_view text, const std::string& by) {
  constexpr std::string_view kParts = "0123456789./";
  while (!text.empty()) {
    const std::size_t begin = std::min(text.find_first_of(kParts), text.size());
    text.remove_prefix(begin);
    const std::size_t length = std::min(text.find_first_not_of(kParts), text.size());
    std::string_view word = text.substr(0, length);
    text.remove_prefix(length);
    while (word.ends_with('.')) word.remove_suffix(1);
    if (const auto network = parse_network(without_port(word))) keep(facts, network->base(), by);
  }
}

void note_tcp_peers(HostFacts& facts, std::string_view table) {
  constexpr std::string_view kEstablished = "01";
  constexpr std::string_view kMapped = "0000000000000000FFFF0000";
  for (const std::string_view line : lines_of(table)) {
    const auto words = words_of(line);
    if (words.size() < 4 || words[3] != kEstablished) continue;
    std::string_view peer = words[2].substr(0, words[2].find(':'));
    if (peer.starts_with(kMapped)) peer.remove_prefix(kMapped.size());
    if (const auto address = ipv4_of_hex(peer)) keep(facts, {*address, 32}, "a TCP peer");
  }
}

}  // namespace mccl::cluster
