#include "cluster/paths.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "cluster/text.h"

namespace mccl::cluster {
namespace {

/// Maximum number of paths from one host to another. Without this limit, the test of a host that
/// reports thousands of addresses would take hours.
constexpr std::size_t kMostPaths = 64;

void add_paths(std::vector<InterfacePath>& paths, const End& from, const Interface& a,
               const End& to, const Interface& b) {
  for (const Network& one : a.addresses) {
    for (const Network& other : b.addresses) {
      if (!one.is_beside(other) || paths.size() == kMostPaths) continue;
      paths.push_back({.from = from,
                       .to = to,
                       .source = text_of(one.address),
                       .target = text_of(other.address),
                       .nominal_mbit = std::max(0, std::min(a.mbit_per_s, b.mbit_per_s)),
                       .mtu = std::min(a.mtu, b.mtu)});
    }
  }
}

/// Adds a routed path from host `from` to each address of host `to`, whose facts are `there`. Used
/// for two hosts without a common network, as is usual in clouds. The MTUs along the route, and
/// therefore `mtu`, are unknown.
void add_routed_paths(std::vector<InterfacePath>& paths, int from, int to, const HostFacts& there) {
  for (const Interface& interface : there.interfaces) {
    if (!interface.may_join_hosts()) continue;
    for (const Network& network : interface.addresses) {
      if (kSelfAssigned.holds(network.address) || paths.size() == kMostPaths) continue;
      paths.push_back({.from = {from, ""},
                       .to = {to, interface.name},
                       .target = text_of(network.address),
                       .routed = true});
    }
  }
}

std::vector<InterfacePath> paths_between(Hosts hosts, int from, int to) {
  std::vector<InterfacePath> paths;
  for (const Interface& one : hosts[static_cast<std::size_t>(from)].interfaces) {
    if (!one.may_join_hosts()) continue;
    for (const Interface& other : hosts[static_cast<std::size_t>(to)].interfaces) {
      if (!other.may_join_hosts()) continue;
      add_paths(paths, {from, one.name}, one, {to, other.name}, other);
    }
  }
  if (paths.empty()) add_routed_paths(paths, from, to, hosts[static_cast<std::size_t>(to)]);
  return paths;
}

std::string packet_text(const InterfacePath& path) {
  if (path.packet == 0) return "-";
  return path.loses_packets() ? fmt::format("{} of {}", path.packet, path.mtu)
                              : std::to_string(path.packet);
}

/// Maximum number of rows in the table. The number of paths grows with the square of the number of
/// hosts.
constexpr std::size_t kMostRows = 400;

}  // namespace

bool InterfacePath::good() const {
  return tried && std::ranges::any_of(faults, &std::string::empty);
}

bool InterfacePath::all_ports_good() const {
  return std::ranges::all_of(faults, &std::string::empty);
}

std::vector<InterfacePath> paths_of(Hosts hosts) {
  std::vector<InterfacePath> paths;
  for (std::size_t a = 0; a < hosts.size(); ++a) {
    for (std::size_t b = 0; b < hosts.size(); ++b) {
      if (a == b) continue;
      std::vector<InterfacePath> more =
          paths_between(hosts, static_cast<int>(a), static_cast<int>(b));
      std::ranges::move(more, std::back_inserter(paths));
    }
  }
  return paths;
}

std::string table_of(Paths paths, Hosts hosts) {
  TableRows rows = {
      {"from", "interface", "to", "address", "latency", "rate", "hardware", "packets", "connects"}};
  const std::vector<bool> slow = slow_ones(paths);
  std::size_t left_out = 0;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const InterfacePath& path = paths[i];
    const bool faulty = !path.all_ports_good() || !path.tried || slow[i] || path.loses_packets();
    if (paths.size() > kMostRows && (!faulty || rows.size() > kMostRows)) {
      ++left_out;
      continue;
    }
    std::string connects = path.tried ? "yes" : "not tried";
    for (const std::string& fault : path.faults)
      if (!fault.empty()) connects = fault;
    rows.push_back({host_of(hosts, path.from).host, path.routed ? "(routed)" : path.from.interface,
                    host_of(hosts, path.to).host, path.target,
                    path.latency_s > 0 ? fmt::format("{:.1f} us", path.latency_s * 1e6) : "-",
                    path.bytes_per_s > 0 ? rate_text(path.bytes_per_s * 8 / 1e6) : "-",
                    rate_text(path.nominal_mbit), packet_text(path), connects});
  }
  std::string text = rows.size() == 1 ? "" : table_text(rows);
  if (left_out > 0)
    text += fmt::format("{} of {} paths are not shown; --json shows all paths\n", left_out,
                        paths.size());
  return text;
}

}  // namespace mccl::cluster
