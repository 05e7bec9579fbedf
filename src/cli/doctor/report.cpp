#include "cli/doctor/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "cluster/read_facts.h"
#include "cluster/text.h"

namespace mccl::cli::doctor {
namespace {

using cluster::HostFacts;
using cluster::Interface;
using hosts::Asked;
using nlohmann::json;
using Rows = cluster::TableRows;

/// Version of the JSON format. Incremented when a member changes its meaning or is removed;
/// docs/operating.md describes the format.
constexpr int kSchema = 1;

std::string limit_text(const std::optional<long>& limit) {
  if (!limit) return "?";
  return *limit == cluster::kNoLimit ? "unlimited" : std::to_string(*limit);
}

std::string version_of(const HostFacts& facts, const std::string& name) {
  const auto found = facts.versions.find(name);
  return found == facts.versions.end() ? "-" : found->second;
}

std::string nccl_of(const HostFacts& facts) {
  for (const auto& [name, version] : facts.versions)
    if (name.starts_with("nvidia-nccl")) return version;
  return "-";
}

Rows rows_of_hosts(const std::vector<Asked>& asked) {
  Rows rows = {{"host", "system", "cores", "memory", "files", "locked", "mccl", "python", "torch",
                "mlx", "nccl", "GPUs"}};
  for (const Asked& each : asked) {
    if (!each.reached) continue;
    const HostFacts& facts = each.facts;
    rows.push_back({facts.host, facts.os, std::to_string(facts.cores),
                    fmt::format("{:.0f} GiB", facts.memory_gib), limit_text(facts.most_open_files),
                    facts.locked_kib && *facts.locked_kib != cluster::kNoLimit
                        ? fmt::format("{} KiB", *facts.locked_kib)
                        : limit_text(facts.locked_kib),
                    version_of(facts, "mccl"), version_of(facts, "python"),
                    version_of(facts, "torch"), version_of(facts, "mlx"), nccl_of(facts),
                    std::to_string(facts.gpus.size())});
  }
  return rows;
}

std::string addresses_of(const Interface& interface) {
  std::vector<std::string> texts;
  for (const auto& network : interface.addresses) texts.push_back(text_of(network));
  return texts.empty() ? "-" : fmt::format("{}", fmt::join(texts, " "));
}

std::string state_of(const Interface& interface) {
  if (!interface.up) return "down";
  return interface.carrier.value_or(true) ? "up" : "no carrier";
}

Rows rows_of_interfaces(const std::vector<Asked>& asked) {
  Rows rows = {{"host", "interface", "kind", "state", "speed", "MTU", "addresses", "RDMA"}};
  for (const Asked& each : asked) {
    for (const Interface& interface : each.facts.interfaces) {
      if (interface.kind == cluster::Medium::loopback) continue;
      // Omits interfaces that lead nowhere. macOS has many of them, such as tunnels.
      if (interface.joins && !interface.has_ipv4()) continue;
      rows.push_back({each.facts.host, interface.name, std::string(name_of(interface.kind)),
                      state_of(interface), cluster::rate_text(interface.mbit_per_s),
                      std::to_string(interface.mtu), addresses_of(interface),
                      interface.rdma.empty() ? "-" : interface.rdma});
    }
  }
  return rows;
}

std::vector<HostFacts> reached_of(const Report& report) {
  std::vector<HostFacts> facts;
  for (const Asked& each : report.asked)
    if (each.reached) facts.push_back(each.facts);
  return facts;
}

json json_of_paths(const Report& report) {
  const std::vector<HostFacts> facts = reached_of(report);
  json paths = json::array();
  for (const cluster::Path& path : report.between.paths) {
    paths.push_back({{"from", host_of(facts, path.from).host},
                     {"from_interface", path.from.interface},
                     {"from_address", path.source},
                     {"routed", path.routed},
                     {"to", host_of(facts, path.to).host},
                     {"to_interface", path.to.interface},
                     {"to_address", path.target},
                     {"hardware_mbit_per_s", path.nominal_mbit},
                     {"mtu", path.mtu},
                     {"tried", path.tried},
                     {"connects", path.good()},
                     {"largest_packet", path.packet},
                     {"latency_us", path.latency_s * 1e6},
                     {"mbit_per_s", path.bytes_per_s * 8 / 1e6}});
  }
  return paths;
}

}  // namespace

std::string text_of(const Report& report) {
  std::string text = cluster::table_text(rows_of_hosts(report.asked));
  text += "\n" + cluster::table_text(rows_of_interfaces(report.asked)) + "\n";
  const std::string paths = table_of(report.between.paths, reached_of(report));
  if (!paths.empty()) text += paths + "\n";
  text += cluster::text_of(report.findings);
  const auto faults = std::ranges::count_if(report.findings, cluster::is_fault);
  return text + (faults == 0 ? "no faults found\n" : fmt::format("faults found: {}\n", faults));
}

json json_of(const Report& report) {
  json hosts = json::array();
  for (const Asked& each : report.asked) {
    json host = each.reached ? json_of(each.facts) : json{{"fault", each.fault}};
    host["host"] = text_of(each.host);
    host["reached"] = each.reached;
    hosts.push_back(std::move(host));
  }
  return {{"schema", kSchema},
          {"mccl", MCCL_VERSION},
          {"hosts", hosts},
          {"paths", json_of_paths(report)},
          {"findings", report.findings}};
}

}  // namespace mccl::cli::doctor
