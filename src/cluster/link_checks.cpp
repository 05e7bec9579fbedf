#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "cluster/checks.h"
#include "cluster/setup.h"

namespace mccl::cluster {
namespace {

/// True if both ends have an address in a common network.
bool share_a_network(Hosts hosts, const End& a, const End& b) {
  const Interface* here = interface_of(hosts, a);
  const Interface* there = interface_of(hosts, b);
  if (here == nullptr || there == nullptr) return false;
  return std::ranges::any_of(here->addresses, [&](const Network& one) {
    return std::ranges::any_of(there->addresses,
                               [&](const Network& other) { return one.base() == other.base(); });
  });
}

/// Returns the end's first address, preferably IPv4, for people; empty if it has none.
std::string address_of(Hosts hosts, const End& end) {
  const Interface* interface = interface_of(hosts, end);
  return interface == nullptr || interface->addresses.empty()
             ? ""
             : text_of(interface->addresses.front());
}

void check_cable(Hosts hosts, const CableLink& link, Findings& findings) {
  if (interface_of(hosts, link.a) == nullptr || interface_of(hosts, link.b) == nullptr) return;
  const std::string a = name_of(hosts, link.a);
  const std::string b = name_of(hosts, link.b);
  const std::string address_a = address_of(hosts, link.a);
  const std::string address_b = address_of(hosts, link.b);
  const std::string where = fmt::format("{}, {}", a, b);
  if (address_a.empty() != address_b.empty()) {
    findings.push_back({"cable-half-addressed", Severity::warning,
                        fmt::format("a cable has an address at {} and none at {}",
                                    address_a.empty() ? b : a, address_a.empty() ? a : b),
                        where, "no job can use the cable",
                        "mccl config --auto-setup gives both ends an address"});
  } else if (address_a.empty()) {
    findings.push_back({"cable-without-address", Severity::note, "a cable has no addresses", where,
                        "MLX's backends cannot use the cable; MCCL uses its IPv6 link-local "
                        "addresses, but only if the ranks can first connect over another network",
                        "mccl config --auto-setup gives both ends an address"});
  } else if (!share_a_network(hosts, link.a, link.b)) {
    findings.push_back(
        {"cable-ends-differ", Severity::problem,
         fmt::format("the ends of a cable are in different networks: {} and {}", address_a,
                     address_b),
         where, "no packet through the cable arrives",
         fmt::format(
             "remove the address of one end, {}: sudo {}; then run mccl config "
             "--auto-setup, which gives this end a matching address",
             b, command_to_remove(host_of(hosts, link.b).system, link.b.interface, address_b))});
  }
}

/// Finds ends whose addresses are in a different IP network from those of all other ends of `wire`.
void check_network(Hosts hosts, const Wire& wire, Findings& findings) {
  std::vector<End> ends = wire.ends;
  std::erase_if(ends, [&](const End& end) { return address_of(hosts, end).empty(); });
  for (const End& end : ends) {
    const bool alone = std::ranges::none_of(ends, [&](const End& other) {
      return &other != &end && share_a_network(hosts, end, other);
    });
    if (!alone || ends.size() == 1) continue;
    findings.push_back(
        {"network-odd-address", Severity::problem,
         fmt::format(
             "the address {} is in a different network from all other addresses on the same switch",
             address_of(hosts, end)),
         name_of(hosts, end),
         "this interface reaches the other interfaces on the switch only through a router, or not "
         "at all",
         "give this interface an address in the network of the other interfaces"});
  }
}

void check_mtus(Hosts hosts, std::vector<End> ends, Findings& findings) {
  const auto mtu_of = [&](const End& end) {
    const Interface* interface = interface_of(hosts, end);
    return interface == nullptr ? 0 : interface->mtu;
  };
  std::erase_if(ends, [&](const End& end) { return mtu_of(end) <= 0; });
  if (ends.empty()) return;
  const End& least = *std::ranges::min_element(ends, {}, mtu_of);
  const End& most = *std::ranges::max_element(ends, {}, mtu_of);
  if (mtu_of(least) == mtu_of(most)) return;
  findings.push_back(
      {"mtu-differs", Severity::warning,
       fmt::format("MTUs differ: {} has {}, {} has {}", name_of(hosts, least), mtu_of(least),
                   name_of(hosts, most), mtu_of(most)),
       fmt::format("{}, {}", name_of(hosts, least), name_of(hosts, most)),
       "packets larger than the smaller MTU are lost: datagrams always, TCP packets if a router or "
       "bridge on the way has the smaller MTU and does not report it",
       fmt::format("set the same MTU at both ends: sudo {}",
                   command_to_set(host_of(hosts, least).system, least.interface,
                                  fmt::format("mtu {}", mtu_of(most))))});
}

/// Detects two cables whose plugs are exchanged at one host: each end shares a network with an end
/// of the other cable, but not with its own far end.
std::optional<Finding> check_swapped(Hosts hosts, const CableLink& one, const CableLink& other) {
  const auto share = [&](const End& a, const End& b) { return share_a_network(hosts, a, b); };
  if (share(one.a, one.b) || share(other.a, other.b)) return {};
  for (const auto& [near, far] : {std::pair(other.a, other.b), std::pair(other.b, other.a)}) {
    if (!share(one.a, near) || !share(one.b, far)) continue;
    // The finding names two plugs at the same host, which are the easiest to exchange.
    const bool at_b = one.b.host == near.host;
    const End& first = at_b ? one.b : one.a;
    const End& second = at_b ? near : far;
    return Finding{"cables-swapped",
                   Severity::problem,
                   "two cables are exchanged: the networks of their ends match crosswise",
                   fmt::format("{}, {}", name_of(hosts, first), name_of(hosts, second)),
                   "no packet through these cables arrives",
                   "exchange the plugs of these two interfaces"};
  }
  return {};
}

constexpr int kCallPort = 29599;  ///< UDP port to which hosts send discovery messages.

std::string how_to_let_in(const HostFacts& host, const std::string& interface) {
  if (host.system == System::macos)
    return fmt::format(
        "on {}: System Settings, Network, Firewall: allow incoming connections for mccl",
        host.host);
  return fmt::format(
      "on {}: sudo nft insert rule inet filter input iifname \"{}\" udp dport {} accept, or sudo "
      "ufw "
      "allow {}/udp",
      host.host, interface, kCallPort, kCallPort);
}

/// True if the machine that runs mccl is probably the only neighbour on the interface: ssh
/// connected through this interface, and no other host has an address in its network.
bool leads_to_asker_alone(Hosts hosts, const HostFacts& host, const Interface& interface) {
  if (host.asked_at.empty() || !interface.has_address(host.asked_at)) return false;
  return std::ranges::none_of(hosts, [&](const HostFacts& other) {
    return &other != &host && std::ranges::any_of(other.interfaces, [&](const Interface& there) {
      return same_network(interface, there);
    });
  });
}

}  // namespace

Findings check_addressing(Hosts hosts, const Connectivity& joined) {
  Findings findings;
  for (const CableLink& link : joined.links) {
    std::optional<Finding> swapped;
    bool reported = false;
    for (const CableLink& other : joined.links) {
      if (swapped || &other == &link) continue;
      swapped = check_swapped(hosts, link, other);
      reported = swapped && &other < &link;
    }
    if (swapped && !reported) findings.push_back(*swapped);
    if (!swapped) check_cable(hosts, link, findings);
    check_mtus(hosts, {link.a, link.b}, findings);
  }
  for (const Wire& wire : joined.networks) {
    check_network(hosts, wire, findings);
    check_mtus(hosts, wire.ends, findings);
  }
  return findings;
}

Findings check_calls(Hosts hosts, const CallResults& calls) {
  Findings findings;
  for (const int host : calls.deaf) {
    findings.push_back({"calls-deaf", Severity::warning,
                        fmt::format("mccl probe cannot listen on UDP port {}", kCallPort),
                        host_of(hosts, {host, ""}).host,
                        "hosts send test packets to this port to find cables; cables to this host "
                        "may not be found",
                        fmt::format("find the process that uses the port: ss -ulpn sport = :{}; "
                                    "IPv6 must not be disabled: sysctl "
                                    "net.ipv6.conf.all.disable_ipv6",
                                    kCallPort)});
  }
  std::set<Heard> heard;
  for (const Heard& each : calls.heard) {
    heard.insert(each);
    heard.insert({each.from, each.at});
  }
  // Key: an end whose discovery messages arrived, but whose firewall dropped the answers. Value:
  // the ends that sent these answers.
  std::map<End, std::set<End>> hearers;
  for (const Heard& each : calls.unanswered) {
    const bool known =
        interface_of(hosts, each.from) != nullptr && interface_of(hosts, each.at) != nullptr;
    if (known && !heard.contains(each)) hearers[each.from].insert(each.at);
  }
  for (const auto& [caller, ends] : hearers) {
    std::vector<std::string> texts;
    for (const End& end : ends) texts.push_back(name_of(hosts, end));
    findings.push_back(
        {"calls-blocked", Severity::warning,
         fmt::format(
             "test packets from this interface arrive at {}, but the answers do not come back",
             fmt::join(texts, ", ")),
         name_of(hosts, caller),
         fmt::format("a firewall on this host drops packets to UDP port {}, so the cable appears "
                     "to be missing",
                     kCallPort),
         how_to_let_in(host_of(hosts, caller), caller.interface)});
  }
  return findings;
}

Findings check_silence(Hosts hosts, const CallResults& calls) {
  std::set<End> known;
  for (const auto* calls_of : {&calls.heard, &calls.unanswered})
    for (const Heard& each : *calls_of) known.insert({each.at, each.from});
  std::vector<std::string> silent;
  std::string cure;
  for (std::size_t host = 0; host < hosts.size(); ++host) {
    for (const Interface& interface : hosts[host].interfaces) {
      const End end{static_cast<int>(host), interface.name};
      if (!interface.up || interface.carrier != true || !interface.is_of_a_cable() ||
          known.contains(end) || leads_to_asker_alone(hosts, hosts[host], interface))
        continue;
      silent.push_back(name_of(hosts, end));
      if (cure.empty()) cure = how_to_let_in(hosts[host], interface.name);
    }
  }
  if (silent.empty()) return {};
  return {
      {"calls-silent", Severity::warning,
       "no test packet of another host arrived, although cables are plugged in",
       fmt::format("{}", fmt::join(silent, ", ")),
       fmt::format("if these cables join the given hosts, firewalls drop the test packets, which "
                   "hosts send to UDP port {}",
                   kCallPort),
       cure}};
}

}  // namespace mccl::cluster
