#include "cluster/paths.h"

#include <fmt/format.h>

#include <algorithm>

#include "cluster/table.h"

namespace mccl::cluster {
namespace {

bool takes_part(const Interface& interface) {
  return interface.usable() && !interface.joins && interface.medium != Medium::loopback;
}

void add_paths(std::vector<Path>& paths, const End& from, const Interface& a, const End& to,
               const Interface& b) {
  for (const Network& one : a.addresses) {
    for (const Network& other : b.addresses) {
      if (one.prefix_bits >= 32 || one.base() != other.base() || one.address == other.address)
        continue;
      Path path;
      path.from = from;
      path.to = to;
      path.source = one.address;
      path.target = other.address;
      const bool known = a.mbit_per_s > 0 && b.mbit_per_s > 0;
      path.nominal_mbit = known ? std::min(a.mbit_per_s, b.mbit_per_s) : 0;
      path.mtu = std::min(a.mtu, b.mtu);
      paths.push_back(std::move(path));
    }
  }
}

std::string packet_text(const Path& path) {
  if (path.packet == 0) return "-";
  return path.packet < path.mtu ? fmt::format("{} of {}", path.packet, path.mtu)
                                : std::to_string(path.packet);
}

}  // namespace

bool Path::good() const {
  return tried && std::ranges::any_of(faults, [](const std::string& f) { return f.empty(); });
}

std::vector<Path> direct_paths(std::span<const HostFacts> hosts) {
  std::vector<Path> paths;
  for (std::size_t a = 0; a < hosts.size(); ++a) {
    for (std::size_t b = 0; b < hosts.size(); ++b) {
      if (a == b) continue;
      for (const Interface& one : hosts[a].interfaces)
        for (const Interface& other : hosts[b].interfaces)
          if (takes_part(one) && takes_part(other))
            add_paths(paths, {static_cast<int>(a), one.name}, one,
                      {static_cast<int>(b), other.name}, other);
    }
  }
  return paths;
}

std::string table_of(std::span<const Path> paths, std::span<const HostFacts> hosts) {
  std::vector<std::vector<std::string>> rows = {
      {"from", "interface", "to", "address", "latency", "rate", "hardware", "packets", "connects"}};
  for (const Path& path : paths) {
    std::string connects = path.tried ? "yes" : "not tried";
    for (const std::string& fault : path.faults)
      if (!fault.empty()) connects = fault;
    rows.push_back({hosts[static_cast<std::size_t>(path.from.host)].host, path.from.interface,
                    hosts[static_cast<std::size_t>(path.to.host)].host, text_of(path.target),
                    path.latency_s > 0 ? fmt::format("{:.1f} us", path.latency_s * 1e6) : "-",
                    path.bytes_per_s > 0 ? rate_text(path.bytes_per_s * 8 / 1e6) : "-",
                    rate_text(path.nominal_mbit), packet_text(path), connects});
  }
  return rows.size() == 1 ? "" : table_text(rows);
}

}  // namespace mccl::cluster
