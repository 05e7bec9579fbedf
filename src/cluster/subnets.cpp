#include "cluster/subnets.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/value_text.h"
#include "mccl/error.h"

namespace mccl::cluster {
namespace {

constexpr int kPrefixBits = 30;
constexpr std::uint32_t kStep = 4;
constexpr int kWidest = 8;  ///< Bits of the widest network that there is, 10.0.0.0.

/// A network that some host uses.
struct Taken {
  Network network;
  std::string by;  ///< "10.1.0.3 is a DNS server of a".
};

class TakenNetworks {
 public:
  void add(const HostFacts& host) {
    for (const Interface& interface : host.interfaces)
      for (const Network& network : interface.addresses)
        add(network, fmt::format("{} is an address of {}", text_of(network), host.host));
    for (const Route& route : host.routes)
      add(route.to, fmt::format("{} has a route to {}", host.host, text_of(route.to)));
    for (const InUse& each : host.in_use)
      add(extent_of(each.network, host),
          fmt::format("{} is {} of {}", text_of(each.network), each.by, host.host));
  }

  void add(const Network& network, std::string by) {
    // A wider one is not a network but a default route: a VPN takes 0.0.0.0/1 and 128.0.0.0/1.
    if (network.prefix_bits >= kWidest) taken_.push_back({network.base(), std::move(by)});
  }

  /// The one that overlaps `wanted`, or null.
  const Taken* overlapping(const Network& wanted) const {
    for (const Taken& each : taken_)
      if (each.network.overlaps(wanted)) return &each;
    return nullptr;
  }

 private:
  /// The host knows how wide a network is if it has an address in it or a route to it. Any other
  /// address is assumed to lie in a /24.
  static Network extent_of(const Network& used, const HostFacts& host) {
    constexpr int kUsualBits = 24;
    const auto is_known = [&](const Network& network) {
      return network.prefix_bits >= kWidest && network.holds(used.address);
    };
    const bool known =
        std::ranges::any_of(host.routes, [&](const Route& route) { return is_known(route.to); }) ||
        std::ranges::any_of(host.interfaces, [&](const Interface& interface) {
          return std::ranges::any_of(interface.addresses, is_known);
        });
    return {used.address, known ? used.prefix_bits : std::min(used.prefix_bits, kUsualBits)};
  }

  std::vector<Taken> taken_;
};

class FreeNetworks {
 public:
  FreeNetworks(std::span<const HostFacts> hosts, const SubnetChoice& choice)
      : within_(choice.within) {
    for (const HostFacts& host : hosts) taken_.add(host);
    for (const HostFacts& host : choice.others) taken_.add(host);
  }

  Network take() {
    if (within_) {
      if (const auto found = take_from(*within_)) return *found;
      throw Error(fmt::format(
          "no network of four addresses is free in {}: {}; choose another --subnet",
          text_of(*within_), blocked_by_.empty() ? "cables have taken all of it" : blocked_by_));
    }
    for (const Network& pool : kPools)
      if (const auto found = take_from(pool)) return *found;
    throw Error("no private network is free on all hosts; remove addresses that nobody needs");
  }

 private:
  static constexpr std::array<Network, 3> kPools = {
      Network{{0xC0A80000}, 16}, Network{{0xAC100000}, 12}, Network{{0x0A000000}, 8}};

  std::optional<Network> take_from(const Network& pool) {
    for (std::uint64_t at = pool.first().bits; at + kStep - 1 <= pool.last().bits;) {
      const Network wanted{{static_cast<std::uint32_t>(at)}, kPrefixBits};
      const Taken* taken = taken_.overlapping(wanted);
      if (taken == nullptr) {
        taken_.add(wanted, "");
        return wanted;
      }
      if (!taken->by.empty()) blocked_by_ = taken->by;
      // Continues at the first network behind the one that is taken.
      at = std::max<std::uint64_t>(
          at + kStep, (std::uint64_t{taken->network.last().bits} + kStep) / kStep * kStep);
    }
    return {};
  }

  const std::optional<Network> within_;
  TakenNetworks taken_;
  std::string blocked_by_;  ///< The last network that was in the way, in words.
};

const Interface* interface_of(std::span<const HostFacts> hosts, const End& end) {
  return hosts[static_cast<std::size_t>(end.host)].interface(end.interface);
}

/// Routing would not know which of them to take.
bool only_one_of(const HostFacts& host, const Network& network) {
  return std::ranges::count_if(host.interfaces, [&](const Interface& interface) {
           return std::ranges::any_of(interface.addresses, [&](const Network& other) {
             return other.overlaps(network.base());
           });
         }) == 1;
}

std::optional<Addressed> addresses_there(std::span<const HostFacts> hosts, const Link& link) {
  const Interface* a = interface_of(hosts, link.a);
  const Interface* b = interface_of(hosts, link.b);
  if (a == nullptr || b == nullptr || !a->up || !b->up) return {};
  for (const Network& one : a->addresses) {
    for (const Network& other : b->addresses) {
      const bool together =
          one.prefix_bits < 32 && one.base() == other.base() && one.address != other.address;
      // macOS changes addresses of its own making whenever it likes.
      const bool passing = Network{{0xA9FE0000}, 16}.holds(one.address);
      if (together && !passing && only_one_of(hosts[static_cast<std::size_t>(link.a.host)], one) &&
          only_one_of(hosts[static_cast<std::size_t>(link.b.host)], other))
        return Addressed{link, one, other, true};
    }
  }
  return {};
}

}  // namespace

std::vector<Addressed> give_addresses(std::span<const HostFacts> hosts, std::span<const Link> links,
                                      const SubnetChoice& choice) {
  FreeNetworks free(hosts, choice);
  std::vector<Addressed> all;
  for (const Link& link : links) {
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
  if (!network || text.find('/') == text.npos)
    return fmt::format("{} is no network; expected one such as 10.99.0.0/16", in_quotes(text));
  if (network->base() != *network)
    return fmt::format("{} is an address in a network; did you mean {}?", text,
                       text_of(network->base()));
  if (!is_private(*network))
    return text +
           " is not private; expected a network in 10.0.0.0/8, 172.16.0.0/12 or "
           "192.168.0.0/16";
  if (network->prefix_bits > kPrefixBits)
    return fmt::format("{} is too small; a cable takes four addresses (/{})", text, kPrefixBits);
  return {};
}

}  // namespace mccl::cluster
