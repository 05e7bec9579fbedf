#include "cluster/choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <numeric>

namespace mccl::cluster {
namespace {

using nlohmann::json;

/// Describes a missing cable and the free ports for it: "from a to b (port 2 of a is free)".
std::string cable_text(Hosts hosts, const Pair& pair) {
  const HostFacts& a = hosts[static_cast<std::size_t>(pair.first)];
  const HostFacts& b = hosts[static_cast<std::size_t>(pair.second)];
  std::string text = fmt::format("from {} to {}", a.host, b.host);
  std::vector<std::string> free;
  for (const HostFacts* host : {&a, &b}) {
    const auto port = std::ranges::find_if(host->ports, [](const ThunderboltPort& p) {
      return p.peer_id.empty() && !p.receptacle.empty();
    });
    if (port != host->ports.end())
      free.push_back(fmt::format("port {} of {} is free", port->receptacle, host->host));
  }
  if (!free.empty()) text += fmt::format(" ({})", fmt::join(free, ", "));
  return text;
}

std::string cables_text(Hosts hosts, std::span<const Pair> pairs) {
  constexpr std::size_t kMost = 12;
  std::vector<std::string> texts;
  for (const Pair& pair : pairs.first(std::min(pairs.size(), kMost)))
    texts.push_back(cable_text(hosts, pair));
  if (pairs.size() > kMost) texts.push_back(fmt::format("and {} more", pairs.size() - kMost));
  return fmt::format("{}", fmt::join(texts, "; "));
}

Finding no_ring(Hosts hosts, const RingAnswer& ring, Severity severity) {
  const bool one = ring.missing.size() == 1;
  Finding finding{
      .id = "no-ring",
      .severity = severity,
      .what = ring.proved
                  ? "no ring of cables goes through all hosts"
                  : fmt::format("no ring of cables through all hosts was found in {} search steps",
                                kMostRingSteps),
      .where = names_of(hosts),
      .why =
          "MLX's backends ring and jaccl-ring need a ring; MCCL works on any cables that join all "
          "hosts, and is fastest on a ring",
      .cure = ""};
  if (!ring.missing.empty())
    finding.cure = fmt::format(
        "{} would complete a ring: {}{}", one ? "this cable" : "these cables",
        cables_text(hosts, ring.missing),
        ring.fewest ? "" : " (the search was not exhaustive: fewer cables may be enough)");
  return finding;
}

Finding no_mesh(Hosts hosts, std::span<const Pair> missing) {
  return {.id = "no-mesh",
          .severity = Severity::problem,
          .what = fmt::format("{} pair{} of hosts {} no cable", missing.size(),
                              missing.size() == 1 ? "" : "s", missing.size() == 1 ? "has" : "have"),
          .where = names_of(hosts),
          .why = "jaccl needs a cable from every host to every other host",
          .cure = "add these cables, or use --backend jaccl-ring: " + cables_text(hosts, missing)};
}

Finding too_many(Hosts hosts) {
  return {.id = "too-many-hosts",
          .severity = Severity::problem,
          .what = fmt::format(
              "no ring of cables was searched for: there are {} hosts, and the limit is {}",
              hosts.size(), kMostRingHosts),
          .where = fmt::format("{} to {}", hosts.front().host, hosts.back().host),
          .why = "a search among so many hosts may never end",
          .cure = "use --over ethernet if one network contains all hosts, or name fewer hosts"};
}

bool has_rdma(Hosts hosts, Links links) {
  const auto is_at = [&](const End& end) {
    const Interface* interface = interface_of(hosts, end);
    return interface != nullptr && !interface->rdma.empty();
  };
  return !links.empty() && std::ranges::all_of(links, [&](const CableLink& link) {
    return is_at(link.a) && is_at(link.b);
  });
}

Finding no_rdma(Hosts hosts, const std::string& backend) {
  return {
      .id = "no-rdma",
      .severity = Severity::problem,
      .what = fmt::format("some ends of cables have no RDMA device; {} needs one at every end",
                          backend),
      .where = names_of(hosts),
      .why =
          "RDMA over Thunderbolt needs Thunderbolt 5 and macOS 26.2 or later, and must be enabled",
      .cure = "run mccl doctor to see which hosts lack RDMA, or use --backend ring"};
}

/// True if a and b are adjacent in `order`, where the last and the first are adjacent too.
bool are_neighbours(std::span<const int> order, int a, int b) {
  const auto gap = std::abs(std::ranges::find(order, a) - std::ranges::find(order, b));
  return gap == 1 || gap == std::ssize(order) - 1;
}

/// Returns the indices of all hosts.
std::vector<int> all_of(Hosts hosts) {
  std::vector<int> order(hosts.size());
  std::iota(order.begin(), order.end(), 0);
  return order;
}

bool all_joined(int hosts, Links links) {
  std::vector<Pair> pairs;
  for (const CableLink& link : links) pairs.emplace_back(link.a.host, link.b.host);
  return parts_of(hosts, pairs).size() == 1;
}

/// Returns the first IPv6 address of the end, or the first IPv4 address if `ipv6` is false. Empty
/// if the end has no such address.
std::string address_of_end(Hosts hosts, const End& end, bool ipv6) {
  const Interface* interface = interface_of(hosts, end);
  if (interface == nullptr) return {};
  const auto found = std::ranges::find(interface->addresses, ipv6,
                                       [](const Network& n) { return n.address.is_ipv6; });
  return found == interface->addresses.end() ? "" : text_of(found->address);
}

/// Returns the RDMA devices of `from` at its cables to `to`: null for no cable, a string for one
/// device, an array for several.
json devices_to(Hosts hosts, std::span<const Addressed> links, int from, int to) {
  json devices = json::array();
  for (const Addressed& each : links) {
    if (std::minmax(each.link.a.host, each.link.b.host) != std::minmax(from, to)) continue;
    const Interface* interface = interface_of(hosts, own_end(each.link, from));
    if (interface != nullptr) devices.push_back(interface->rdma);
  }
  if (devices.empty()) return {};
  return devices.size() == 1 ? devices.front() : devices;
}

/// Repeats addresses until all entries have the same number of addresses. MLX's ring needs as many
/// connections to the previous host as to the next one. An address that is listed twice makes two
/// connections along its cable.
void even_out(std::vector<HostfileEntry>& entries) {
  std::size_t most = 0;
  for (const HostfileEntry& entry : entries) most = std::max(most, entry.ips.size());
  for (HostfileEntry& entry : entries) {
    const std::vector<std::string> own = entry.ips;
    for (std::size_t i = own.size(); !own.empty() && i < most; ++i)
      entry.ips.push_back(own[i % own.size()]);
  }
}

/// Shortens the device list of every pair of hosts to the length of the shortest list. MLX's jaccl
/// refuses a ring in which the number of devices differs between pairs.
void even_out_devices(std::vector<HostfileEntry>& entries) {
  std::size_t least = std::numeric_limits<std::size_t>::max();
  for (const HostfileEntry& entry : entries)
    for (const json& devices : entry.rdma)
      if (!devices.is_null()) least = std::min(least, devices.is_array() ? devices.size() : 1);
  for (HostfileEntry& entry : entries) {
    for (json& devices : entry.rdma) {
      if (!devices.is_array()) continue;
      if (least == 1) {
        devices = json(devices.front());
      } else {
        devices.erase(devices.begin() + static_cast<std::ptrdiff_t>(least), devices.end());
      }
    }
  }
}

bool is_jaccl(const std::string& backend) { return backend.starts_with("jaccl"); }

/// Returns the addresses of the host at index `place` of `choice.order`: in a ring, the addresses
/// on cables from the previous host; otherwise, the addresses on all cables of the host.
std::vector<std::string> ips_of(const TopologyChoice& choice, std::span<const Addressed> links,
                                std::size_t place) {
  const std::size_t size = choice.order.size();
  const int host = choice.order[place];
  const int before = choice.order[(place + size - 1) % size];
  std::vector<std::string> ips;
  for (const Addressed& each : links) {
    if (each.link.a.host != host && each.link.b.host != host) continue;
    if (choice.shape == Topology::ring && other_end(each.link, host).host != before) continue;
    ips.push_back(text_of(each.of(host).address));
  }
  return ips;
}

}  // namespace

TopologyChoice choose_cables(Hosts hosts, Links links, const std::string& backend) {
  TopologyChoice choice;
  const auto size = static_cast<int>(hosts.size());
  choice.order = all_of(hosts);
  if (size > kMostRingHosts) {
    choice.findings.push_back(too_many(hosts));
    return choice;
  }
  const Capacities capacities = capacities_of(size, links);
  const RingAnswer ring = best_ring(capacities);
  const std::vector<Pair> holes = missing_of_mesh(capacities);
  const bool rdma = has_rdma(hosts, links);
  if (is_jaccl(backend) && !rdma) choice.findings.push_back(no_rdma(hosts, backend));
  if ((backend == "jaccl" || (backend.empty() && rdma)) && holes.empty()) {
    choice.shape = Topology::mesh;
    choice.backend = "jaccl";
    choice.links.assign(links.begin(), links.end());
  } else if (backend == "jaccl") {
    choice.findings.push_back(no_mesh(hosts, holes));
  } else if (!ring.order.empty()) {
    choice.shape = Topology::ring;
    choice.backend = !backend.empty() ? backend : (rdma ? "jaccl-ring" : "ring");
    choice.order = ring.order;
    std::ranges::copy_if(links, std::back_inserter(choice.links), [&](const CableLink& link) {
      return are_neighbours(ring.order, link.a.host, link.b.host);
    });
  } else if (backend.empty() && all_joined(size, links)) {
    choice.shape = Topology::any;
    choice.links.assign(links.begin(), links.end());
    choice.findings.push_back(no_ring(hosts, ring, Severity::note));
  } else {
    choice.findings.push_back(no_ring(hosts, ring, Severity::problem));
  }
  if (std::ranges::any_of(choice.findings, is_fault)) choice.shape = Topology::none;
  return choice;
}

std::map<int, std::string> addresses_in(Hosts hosts, const Wire& wire) {
  std::map<int, std::string> most;
  for (const bool ipv6 : {false, true}) {
    std::map<int, std::string> addresses;
    for (const End& end : wire.ends)
      if (std::string text = address_of_end(hosts, end, ipv6); !text.empty())
        addresses.try_emplace(end.host, std::move(text));
    if (addresses.size() > most.size()) most = std::move(addresses);
  }
  return most;
}

TopologyChoice choose_networks(Hosts hosts, const Connectivity& joined) {
  TopologyChoice choice;
  std::vector<Wire> complete = joined.networks;
  // A cable between the only two hosts joins all hosts, so it counts as a network, too.
  for (const CableLink& link : joined.links)
    if (hosts.size() == 2) complete.push_back({{link.a, link.b}, link.medium, link.mbit_per_s});
  std::erase_if(complete,
                [&](const Wire& wire) { return addresses_in(hosts, wire).size() < hosts.size(); });
  if (complete.empty()) return choice;
  const auto better = [](const Wire& a, const Wire& b) {
    if (a.medium != b.medium) return a.medium < b.medium;
    return a.mbit_per_s > b.mbit_per_s;
  };
  const Wire best = *std::ranges::min_element(complete, better);
  for (const Wire& wire : complete)
    if (!better(best, wire)) choice.networks.push_back(wire);
  choice.shape = Topology::network;
  choice.backend = "ring";
  choice.order = all_of(hosts);
  if (best.medium == InterfaceKind::wireless) {
    choice.findings.push_back(
        {.id = "only-wifi",
         .severity = Severity::warning,
         .what = "only Wi-Fi joins all hosts",
         .where = names_of(hosts),
         .why = "Wi-Fi is 10 to 100 times slower than a cable and loses packets",
         .cure = "connect the hosts with cables, then run mccl config again"});
  }
  return choice;
}

std::vector<HostfileEntry> entries_of(Hosts hosts, const TopologyChoice& choice,
                                      std::span<const Addressed> links,
                                      std::span<const std::string> side) {
  std::vector<HostfileEntry> entries;
  for (std::size_t place = 0; place < choice.order.size(); ++place) {
    HostfileEntry entry;
    entry.host = choice.order[place];
    if (choice.shape == Topology::network) {
      for (const Wire& wire : choice.networks) {
        const auto addresses = addresses_in(hosts, wire);
        if (const auto own = addresses.find(entry.host); own != addresses.end())
          entry.ips.push_back(own->second);
      }
    } else {
      entry.ips = ips_of(choice, links, place);
    }
    if (is_jaccl(choice.backend)) {
      for (const int other : choice.order)
        entry.rdma.push_back(other == entry.host ? json()
                                                 : devices_to(hosts, links, entry.host, other));
      const std::string& apart = side[static_cast<std::size_t>(entry.host)];
      if (!apart.empty()) entry.ips = {apart};
    }
    entries.push_back(std::move(entry));
  }
  if (choice.shape == Topology::ring) {
    even_out(entries);
    even_out_devices(entries);
  }
  return entries;
}

}  // namespace mccl::cluster
