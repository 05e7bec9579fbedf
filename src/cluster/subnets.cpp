#include "cluster/subnets.h"

#include <algorithm>
#include <array>
#include <optional>

#include "mccl/error.h"

namespace mccl::cluster {
namespace {

constexpr int kPrefixBits = 30;
constexpr std::uint32_t kStep = 4;
constexpr int kWidest = 8;  ///< Bits of the widest network that there is, 10.0.0.0.

/// What some host uses, without repeats and in order.
class Used {
 public:
  explicit Used(std::span<const HostFacts> hosts) {
    for (const HostFacts& host : hosts) {
      for (const Interface& interface : host.interfaces)
        for (const Network& network : interface.addresses) add(network);
      for (const Route& route : host.routes) add(route.to);
    }
  }

  void add(const Network& network) {
    // Wider ones are no networks, but ways out: a VPN takes 0.0.0.0/1 and 128.0.0.0/1.
    if (network.prefix_bits >= kWidest) used_.push_back(network.base());
  }

  /// The network in the way of `wanted`, if any.
  std::optional<Network> in_the_way(const Network& wanted) const {
    for (const Network& network : used_)
      if (network.overlaps(wanted)) return network;
    return {};
  }

 private:
  std::vector<Network> used_;
};

class FreeNetworks {
 public:
  explicit FreeNetworks(std::span<const HostFacts> hosts) : used_(hosts) {}

  Network take() {
    for (const Network& pool : kPools) {
      for (std::uint64_t at = pool.first().bits; at + kStep - 1 <= pool.last().bits;) {
        const Network wanted{{static_cast<std::uint32_t>(at)}, kPrefixBits};
        const auto blocked = used_.in_the_way(wanted);
        if (!blocked) {
          used_.add(wanted);
          return wanted;
        }
        // To the first network behind what is in the way.
        at = std::max<std::uint64_t>(at + kStep,
                                     (std::uint64_t{blocked->last().bits} + kStep) / kStep * kStep);
      }
    }
    throw Error("no private network is free on all hosts; remove addresses that nobody needs");
  }

 private:
  static constexpr std::array<Network, 3> kPools = {
      Network{{0xC0A80000}, 16}, Network{{0xAC100000}, 12}, Network{{0x0A000000}, 8}};

  Used used_;
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

std::vector<Addressed> give_addresses(std::span<const HostFacts> hosts,
                                      std::span<const Link> links) {
  FreeNetworks free(hosts);
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

}  // namespace mccl::cluster
