#include "cluster/subnets.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>

#include "base/value_text.h"
#include "mccl/error.h"

namespace mccl::cluster {
namespace {

constexpr int kPrefixBits = 30;
constexpr int kStep = 4;    ///< Number of addresses in a /30 network.
constexpr int kWidest = 8;  ///< Prefix length of the widest private network, 10.0.0.0/8.

/// The networks that are in use, each with the reason, such as "10.1.0.3 is a DNS server of a". Two
/// networks overlap only if one contains the other, so only the widest networks are kept.
class NetworkSet {
 public:
  struct Use {
    Network network;
    std::string by;
  };

  /// Adds the network, unless an entry contains it. Removes the entries that lie in it. Ignores
  /// IPv6, because cables get IPv4 networks only. Ignores networks wider than any private network,
  /// because they are default routes, such as 0.0.0.0/1 and 128.0.0.0/1 of a VPN.
  void add(const Network& network, std::string by) {
    const Network base = network.base();
    if (base.address.is_ipv6 || base.prefix_bits < kWidest) return;
    if (const Use* known = overlapping(base);
        known && known->network.prefix_bits <= base.prefix_bits)
      return;
    const auto first = entries_.lower_bound(base.first());
    entries_.erase(first, entries_.upper_bound(base.last()));
    entries_.emplace(base.first(), Use{base, std::move(by)});
  }

  /// Returns an entry that overlaps `wanted`; null if there is none.
  const Use* overlapping(const Network& wanted) const {
    auto next = entries_.upper_bound(wanted.last());
    if (next == entries_.begin()) return nullptr;
    const Use& last = std::prev(next)->second;
    return last.network.overlaps(wanted) ? &last : nullptr;
  }

 private:
  std::map<IpAddress, Use> entries_;  ///< Keyed by the first address of the network.
};

/// Adds to `taken` the networks of the host's addresses and routes, and those of HostFacts::in_use.
void add(NetworkSet& taken, const HostFacts& host) {
  constexpr int kUsualBits = 24;
  NetworkSet known;  // Networks in which the host has an address, or to which it has a route.
  for (const Interface& interface : host.interfaces)
    for (const Network& network : interface.addresses) {
      known.add(network, "");
      taken.add(network, fmt::format("{} is an address of {}", text_of(network), host.host));
    }
  for (const Route& route : host.routes) {
    known.add(route.to, "");
    taken.add(route.to, fmt::format("{} has a route to {}", host.host, text_of(route.to)));
  }
  for (const InUse& each : host.in_use) {
    // An address whose network is not known is assumed to lie in a /24.
    const Network& used = each.network;
    const bool is_known = known.overlapping({used.address, 32}) != nullptr;
    const int bits = is_known ? used.prefix_bits : std::min(used.prefix_bits, kUsualBits);
    taken.add({used.address, bits},
              fmt::format("{} is {} of {}", text_of(used), printable(each.by), host.host));
  }
}

class FreeNetworks {
 public:
  FreeNetworks(Hosts hosts, const SubnetChoice& choice) : within_(choice.within) {
    for (const HostFacts& host : hosts) add(taken_, host);
    for (const HostFacts& host : choice.others) add(taken_, host);
    const std::span<const Network> pools = within_ ? std::span(&*within_, 1) : std::span(kPools);
    for (const Network& pool : pools) pools_.push_back({pool, pool.first().bits});
  }

  Network take() {
    for (AddressPool& pool : pools_)
      if (const auto found = take_from(pool)) return *found;
    if (within_)
      throw Error(fmt::format(
          "no network of four addresses is free in {}: {}; choose another --subnet",
          text_of(*within_), blocked_by_.empty() ? "the cables use the whole range" : blocked_by_));
    throw Error("no private network is free on all hosts; remove unused addresses");
  }

 private:
  static constexpr std::array<Network, 3> kPools = {
      Network{{0xC0A80000}, 16}, Network{{0xAC100000}, 12}, Network{{0x0A000000}, 8}};

  struct AddressPool {
    Network network;
    AddressBits next;  ///< The first address that has not been examined yet.
  };

  std::optional<Network> take_from(AddressPool& pool) {
    while (pool.next + kStep - 1 <= pool.network.last().bits) {
      const Network wanted{{pool.next}, kPrefixBits};
      const NetworkSet::Use* taken = taken_.overlapping(wanted);
      // The search continues after the whole network that is in use.
      const IpAddress end = std::max(taken ? taken->network.last() : IpAddress{}, wanted.last());
      pool.next = (end.bits + kStep) / kStep * kStep;
      if (taken == nullptr) return wanted;
      blocked_by_ = taken->by;
    }
    return {};
  }

  const std::optional<Network> within_;
  NetworkSet taken_;
  std::vector<AddressPool> pools_;
  std::string blocked_by_;  ///< The reason why the last skipped network is in use.
};

/// True if only one interface of the host has an address whose network overlaps `network`. With
/// several such interfaces, routing could not choose between them.
bool only_one_of(const HostFacts& host, const Network& network) {
  return std::ranges::count_if(host.interfaces, [&](const Interface& interface) {
           return std::ranges::any_of(interface.addresses, [&](const Network& other) {
             return other.overlaps(network.base());
           });
         }) == 1;
}

/// Returns the link with its present addresses; empty if it cannot keep them.
std::optional<Addressed> addresses_there(Hosts hosts, const CableLink& link) {
  const Interface* a = interface_of(hosts, link.a);
  const Interface* b = interface_of(hosts, link.b);
  if (a == nullptr || b == nullptr || !a->up || !b->up) return {};
  for (const Network& one : a->ipv4()) {
    for (const Network& other : b->ipv4()) {
      if (one.is_beside(other) && !kSelfAssigned.holds(one.address) &&
          only_one_of(host_of(hosts, link.a), one) && only_one_of(host_of(hosts, link.b), other))
        return Addressed{link, one, other, true};
    }
  }
  return {};
}

}  // namespace

std::vector<Addressed> give_addresses(Hosts hosts, Links links, const SubnetChoice& choice) {
  FreeNetworks free(hosts, choice);
  std::vector<Addressed> all;
  for (const CableLink& link : links) {
    if (auto there = addresses_there(hosts, link)) {
      all.push_back(*there);
      continue;
    }
    const Network network = free.take();
    all.push_back({link, Network{{network.address.bits + 1}, kPrefixBits},
                   Network{{network.address.bits + 2}, kPrefixBits}, false});
  }
  return all;
}

std::string fault_of_subnet(const std::string& text) {
  const auto network = parse_network(text);
  if (!network || network->address.is_ipv6 || text.find('/') == text.npos)
    return fmt::format("{} is not a network; expected one such as 10.99.0.0/16", in_quotes(text));
  if (network->base() != *network)
    return fmt::format("{} is the address of a host, not a network; did you mean {}?", text,
                       text_of(network->base()));
  if (!is_private(*network))
    return text +
           " is not private; expected a network in 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, "
           "100.64.0.0/10 or 198.18.0.0/15";
  if (network->prefix_bits > kPrefixBits)
    return fmt::format("{} is too small; a cable needs four addresses (/{})", text, kPrefixBits);
  return {};
}

}  // namespace mccl::cluster
