#include "rendezvous/candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace mccl::rendezvous {

namespace {

using transport::tcp::Address;
using transport::tcp::Interface;

enum class Distance { same_subnet, routed, doubtful, unreachable };

/// Nearest first. An address that is this host's own, or loopback, is doubtful for a peer on
/// another host: many hosts have the same bridge addresses.
Distance distance_to(const Address& address, bool same_host,
                     const std::vector<Interface>& interfaces) {
  if (!transport::tcp::route_source(address)) return Distance::unreachable;
  const bool ours = std::any_of(interfaces.begin(), interfaces.end(), [&](const Interface& each) {
    return each.address.same_host(address);
  });
  if (!same_host && (ours || address.is_loopback())) return Distance::doubtful;
  const bool near = std::any_of(interfaces.begin(), interfaces.end(), [&](const Interface& each) {
    return each.up && !each.loopback && each.reaches(address);
  });
  return near ? Distance::same_subnet : Distance::routed;
}

/// A link-local address names an interface of the peer's; here any interface may lead to it.
void append_parsed(std::vector<Address>& to, const std::string& text, std::uint16_t port,
                   const std::vector<Interface>& interfaces) {
  const std::string number = text.substr(0, text.find('%'));
  const auto bare = Address::parse_numeric(number, port);
  if (!bare) return;
  if (bare->family() != AF_INET6 || !bare->is_link_local()) {
    to.push_back(*bare);
    return;
  }
  for (const Interface& each : interfaces) {
    if (!each.up || each.address.family() != AF_INET6 || !each.address.is_link_local()) continue;
    if (const auto scoped = Address::parse_numeric(number + "%" + each.name, port))
      to.push_back(*scoped);
  }
}

std::vector<Address> loopbacks(std::uint16_t port, const std::vector<Interface>& interfaces) {
  std::vector<Address> found;
  for (const char* text : {"127.0.0.1", "::1"}) {
    const Address address = *Address::parse_numeric(text, port);
    if (std::any_of(interfaces.begin(), interfaces.end(), [&](const Interface& each) {
          return each.up && each.address.same_host(address);
        })) {
      found.push_back(address);
    }
  }
  return found;
}

std::vector<Address> by_distance(std::vector<Address> addresses, bool same_host,
                                 const std::vector<Interface>& interfaces) {
  std::vector<std::pair<Distance, Address>> ranked;
  ranked.reserve(addresses.size());
  for (const Address& address : addresses)
    ranked.emplace_back(distance_to(address, same_host, interfaces), address);
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  addresses.clear();
  for (const auto& [distance, address] : ranked) addresses.push_back(address);
  return addresses;
}

}  // namespace

std::string Candidate::text() const {
  return from ? fmt::format("{} from {}", to.text(), from->host()) : to.text();
}

std::vector<Candidate> candidates_for(const Endpoint& peer, const Endpoint& self, RailOfPair rail,
                                      const std::vector<Interface>& interfaces) {
  const bool same_host = peer.host == self.host;
  std::vector<Address> published;
  for (const std::string& text : peer.addresses)
    append_parsed(published, text, peer.port, interfaces);
  std::vector<Address> ordered = by_distance(published, same_host, interfaces);

  std::vector<Candidate> candidates;
  if (rail.count > 1 && !published.empty()) {
    Candidate own;
    const auto index = static_cast<std::size_t>(rail.index);
    own.to = peer.listed ? published[index % published.size()] : ordered.front();
    if (self.listed)
      own.from = Address::parse_numeric(self.addresses[index % self.addresses.size()], 0);
    if (own.from && own.from->family() != own.to.family()) own.from.reset();
    candidates.push_back(std::move(own));
  } else if (same_host && !peer.listed) {
    for (const Address& address : loopbacks(peer.port, interfaces))
      candidates.push_back({address, {}, {}});
  }
  for (const Address& address : ordered) {
    const bool known = std::any_of(
        candidates.begin(), candidates.end(),
        [&](const Candidate& each) { return each.to == address && !each.from.has_value(); });
    if (!known) candidates.push_back({address, {}, {}});
  }
  return candidates;
}

}  // namespace mccl::rendezvous
