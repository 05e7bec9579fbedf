#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "cluster/commands.h"
#include "cluster/paths.h"

namespace mccl::cluster {
namespace {

/// An end of a link, resolved to its interface.
struct Place {
  std::string name;
  const Interface* interface = nullptr;  ///< Null if the host did not report it.
  System system = System::unknown;
};

Place place_of(std::span<const HostFacts> hosts, const End& end) {
  const HostFacts& host = hosts[static_cast<std::size_t>(end.host)];
  return {fmt::format("{} ({})", host.host, end.interface), host.interface(end.interface),
          host.system};
}

template <typename Networks>
bool have_one_in_common(const Networks& a, const Networks& b) {
  return std::ranges::any_of(a, [&](const auto& one) {
    return std::ranges::any_of(b, [&](const auto& other) { return one.base() == other.base(); });
  });
}

bool share_a_network(const Interface& a, const Interface& b) {
  return have_one_in_common(a.addresses, b.addresses) ||
         have_one_in_common(a.addresses6, b.addresses6);
}

/// Returns the interface's first address, preferably IPv4, for people; empty if it has none.
std::string address_of(const Interface& interface) {
  if (!interface.addresses.empty()) return text_of(interface.addresses.front());
  return interface.addresses6.empty() ? "" : text_of(interface.addresses6.front());
}

void check_cable(const Place& a, const Place& b, std::vector<Finding>& findings) {
  const std::string where = fmt::format("{}, {}", a.name, b.name);
  const bool has_a = !address_of(*a.interface).empty();
  const bool has_b = !address_of(*b.interface).empty();
  if (has_a != has_b) {
    findings.push_back({"cable-half-addressed", Severity::warning,
                        fmt::format("a cable has an address at {} and none at {}",
                                    has_a ? a.name : b.name, has_a ? b.name : a.name),
                        where, "no job can use the cable",
                        "mccl config --auto-setup gives both ends an address"});
  } else if (!has_a) {
    findings.push_back({"cable-without-address", Severity::note, "a cable has no addresses", where,
                        "MLX's backends cannot use it; MCCL uses its IPv6 link-local addresses, "
                        "but only if the ranks can connect over another network at start-up",
                        "mccl config --auto-setup gives both ends an address"});
  } else if (!share_a_network(*a.interface, *b.interface)) {
    findings.push_back(
        {"cable-ends-differ", Severity::problem,
         fmt::format("the ends of a cable are in different networks: {} and {}",
                     address_of(*a.interface), address_of(*b.interface)),
         where, "no packet through the cable arrives",
         fmt::format("remove the address of one end, {}: sudo {}; then run mccl config "
                     "--auto-setup, which gives it a matching address",
                     b.name,
                     command_to_remove(b.system, b.interface->name, address_of(*b.interface)))});
  }
}

/// Finds ends whose addresses are in a different IP network from those of all other ends of the
/// wire.
void check_network(std::span<const HostFacts> hosts, const Wire& wire,
                   std::vector<Finding>& findings) {
  for (const End& end : wire.ends) {
    const Place place = place_of(hosts, end);
    if (place.interface == nullptr || address_of(*place.interface).empty()) continue;
    bool others_share = false;
    bool alone = true;
    for (const End& other : wire.ends) {
      const Place there = place_of(hosts, other);
      if (other == end || there.interface == nullptr || address_of(*there.interface).empty())
        continue;
      alone = alone && !share_a_network(*place.interface, *there.interface);
      others_share = true;
    }
    if (!alone || !others_share) continue;
    findings.push_back(
        {"network-odd-address", Severity::problem,
         fmt::format(
             "its address {} is in another network than all other addresses on the same switch",
             address_of(*place.interface)),
         place.name, "it reaches the others only through a router, or not at all",
         "give it an address in their network"});
  }
}

void check_mtus(std::span<const HostFacts> hosts, std::span<const End> ends,
                std::vector<Finding>& findings) {
  const Place* least = nullptr;
  const Place* most = nullptr;
  std::vector<Place> places;
  for (const End& end : ends) {
    const Place place = place_of(hosts, end);
    if (place.interface != nullptr && place.interface->mtu > 0) places.push_back(place);
  }
  for (const Place& place : places) {
    if (least == nullptr || place.interface->mtu < least->interface->mtu) least = &place;
    if (most == nullptr || place.interface->mtu > most->interface->mtu) most = &place;
  }
  if (least == nullptr || least->interface->mtu == most->interface->mtu) return;
  findings.push_back({"mtu-differs", Severity::warning,
                      fmt::format("MTUs differ: {} has {}, {} has {}", least->name,
                                  least->interface->mtu, most->name, most->interface->mtu),
                      fmt::format("{}, {}", least->name, most->name),
                      "packets larger than the smaller MTU are lost: RDMA and datagrams at once, "
                      "TCP if a router or bridge hides the MTU",
                      fmt::format("set the same MTU at both ends: sudo {}",
                                  command_to_set_mtu(least->system, least->interface->name,
                                                     most->interface->mtu))});
}

/// Detects two cables whose plugs are exchanged at one host: each end shares a network with an end
/// of the other cable, but not with its own far end.
std::optional<Finding> check_swapped(std::span<const HostFacts> hosts, const Link& one,
                                     const Link& other) {
  const auto share = [&](const End& a, const End& b) {
    const Place here = place_of(hosts, a);
    const Place there = place_of(hosts, b);
    return here.interface != nullptr && there.interface != nullptr &&
           share_a_network(*here.interface, *there.interface);
  };
  if (share(one.a, one.b) || share(other.a, other.b)) return {};
  for (const auto& [near, far] : {std::pair(other.a, other.b), std::pair(other.b, other.a)}) {
    if (!share(one.a, near) || !share(one.b, far)) continue;
    // Name two plugs at the same host, which are the easiest to exchange.
    const bool at_b = one.b.host == near.host;
    const End& first = at_b ? one.b : one.a;
    const End& second = at_b ? near : far;
    return Finding{"cables-swapped",
                   Severity::problem,
                   "two cables are exchanged: the networks of their ends match crosswise",
                   fmt::format("{}, {}", place_of(hosts, first).name, place_of(hosts, second).name),
                   "no packet through these cables arrives",
                   "exchange the plugs of these two interfaces"};
  }
  return {};
}

}  // namespace

std::vector<Finding> check_addressing(std::span<const HostFacts> hosts, const Joined& joined) {
  std::vector<Finding> findings;
  for (const Link& link : joined.links) {
    const Place a = place_of(hosts, link.a);
    const Place b = place_of(hosts, link.b);
    std::optional<Finding> swapped;
    bool told = false;
    for (const Link& other : joined.links) {
      if (swapped || &other == &link) continue;
      swapped = check_swapped(hosts, link, other);
      told = swapped && &other < &link;
    }
    if (swapped && !told) findings.push_back(*swapped);
    if (!swapped && a.interface != nullptr && b.interface != nullptr) check_cable(a, b, findings);
    check_mtus(hosts, std::initializer_list<End>{link.a, link.b}, findings);
  }
  for (const Wire& wire : joined.networks) {
    check_network(hosts, wire, findings);
    check_mtus(hosts, wire.ends, findings);
  }
  return findings;
}

}  // namespace mccl::cluster
