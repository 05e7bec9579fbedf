#include "cluster/paths.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "cluster/table.h"

namespace mccl::cluster {
namespace {

/// Self-assigned IPv4 addresses, which systems such as macOS may change at any time.
constexpr Network kPassing = {{0xA9FE0000}, 16};

bool takes_part(const Interface& interface) {
  return interface.usable() && !interface.joins && interface.medium != Medium::loopback;
}

/// Maximum number of paths from one host to another. Without it, a host that reports thousands of
/// addresses would take hours.
constexpr std::size_t kMostPaths = 64;

std::string address_of(const Network& network) { return text_of(network.address); }
std::string address_of(const Network6& network) { return network.address_text(); }

/// True for two different addresses of the same network.
bool are_together(const Network& a, const Network& b) {
  return a.prefix_bits < 32 && a.base() == b.base() && a.address != b.address;
}
bool are_together(const Network6& a, const Network6& b) {
  return a.prefix_bits < 128 && a.base() == b.base() && a.address != b.address;
}

template <typename Networks>
void add_paths(std::vector<Path>& paths, const End& from, const Interface& a,
               const Networks& addresses, const End& to, const Interface& b,
               const Networks& others) {
  for (const auto& one : addresses) {
    for (const auto& other : others) {
      if (!are_together(one, other)) continue;
      Path path;
      path.from = from;
      path.to = to;
      path.source = address_of(one);
      path.target = address_of(other);
      const bool known = a.mbit_per_s > 0 && b.mbit_per_s > 0;
      path.nominal_mbit = known ? std::min(a.mbit_per_s, b.mbit_per_s) : 0;
      path.mtu = std::min(a.mtu, b.mtu);
      if (paths.size() < kMostPaths) paths.push_back(std::move(path));
    }
  }
}

/// Adds a routed path to each address of the host `there`. Used for two hosts without a common
/// network, as is usual in clouds.
void add_routed_paths(std::vector<Path>& paths, int from, int to, const HostFacts& there) {
  for (const Interface& interface : there.interfaces) {
    if (!takes_part(interface)) continue;
    std::vector<std::string> targets;
    for (const Network& network : interface.addresses)
      if (!kPassing.holds(network.address)) targets.push_back(address_of(network));
    for (const Network6& network : interface.addresses6) targets.push_back(address_of(network));
    for (std::string& target : targets) {
      if (paths.size() == kMostPaths) return;
      Path path;
      path.from = {from, ""};
      path.to = {to, interface.name};
      path.target = std::move(target);
      path.mtu = 0;  // The MTUs along the route are unknown.
      path.routed = true;
      paths.push_back(std::move(path));
    }
  }
}

/// Returns all paths from one host to another.
std::vector<Path> paths_between(std::span<const HostFacts> hosts, int from, int to) {
  std::vector<Path> paths;
  for (const Interface& one : hosts[static_cast<std::size_t>(from)].interfaces) {
    if (!takes_part(one)) continue;
    for (const Interface& other : hosts[static_cast<std::size_t>(to)].interfaces) {
      if (!takes_part(other)) continue;
      const End a{from, one.name};
      const End b{to, other.name};
      add_paths(paths, a, one, one.addresses, b, other, other.addresses);
      add_paths(paths, a, one, one.addresses6, b, other, other.addresses6);
    }
  }
  if (paths.empty()) add_routed_paths(paths, from, to, hosts[static_cast<std::size_t>(to)]);
  return paths;
}

std::string packet_text(const Path& path) {
  if (path.packet == 0) return "-";
  return path.packet < path.mtu ? fmt::format("{} of {}", path.packet, path.mtu)
                                : std::to_string(path.packet);
}

/// Maximum number of rows in the table. The number of paths grows with the square of the number of
/// hosts.
constexpr std::size_t kMostRows = 400;

bool is_as_it_should_be(const Path& path, bool slow) {
  const bool fine =
      std::ranges::all_of(path.faults, [](const auto& fault) { return fault.empty(); });
  return fine && path.tried && !slow && (path.packet == 0 || path.packet >= path.mtu);
}

}  // namespace

bool Path::good() const {
  return tried && std::ranges::any_of(faults, [](const std::string& f) { return f.empty(); });
}

std::vector<Path> paths_of(std::span<const HostFacts> hosts) {
  std::vector<Path> paths;
  for (std::size_t a = 0; a < hosts.size(); ++a) {
    for (std::size_t b = 0; b < hosts.size(); ++b) {
      if (a == b) continue;
      std::vector<Path> more = paths_between(hosts, static_cast<int>(a), static_cast<int>(b));
      std::ranges::move(more, std::back_inserter(paths));
    }
  }
  return paths;
}

std::string table_of(std::span<const Path> paths, std::span<const HostFacts> hosts) {
  std::vector<std::vector<std::string>> rows = {
      {"from", "interface", "to", "address", "latency", "rate", "hardware", "packets", "connects"}};
  const std::vector<bool> slow = slow_ones(paths);
  std::size_t left_out = 0;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const Path& path = paths[i];
    if (paths.size() > kMostRows &&
        (is_as_it_should_be(path, slow[i]) || rows.size() > kMostRows)) {
      ++left_out;
      continue;
    }
    std::string connects = path.tried ? "yes" : "not tried";
    for (const std::string& fault : path.faults)
      if (!fault.empty()) connects = fault;
    rows.push_back({hosts[static_cast<std::size_t>(path.from.host)].host,
                    path.routed ? "(routed)" : path.from.interface,
                    hosts[static_cast<std::size_t>(path.to.host)].host, path.target,
                    path.latency_s > 0 ? fmt::format("{:.1f} us", path.latency_s * 1e6) : "-",
                    path.bytes_per_s > 0 ? rate_text(path.bytes_per_s * 8 / 1e6) : "-",
                    rate_text(path.nominal_mbit), packet_text(path), connects});
  }
  std::string text = rows.size() == 1 ? "" : table_text(rows);
  if (left_out > 0)
    text += fmt::format("{} of {} paths are not shown; --json has all\n", left_out, paths.size());
  return text;
}

}  // namespace mccl::cluster
