#include <fmt/format.h>

#include <algorithm>

#include "base/value_text.h"
#include "cli/hosts/inquiry.h"
#include "cluster/checks.h"

namespace mccl::cli::hosts {
namespace {

using cluster::Finding;
using cluster::HostFacts;
using cluster::Severity;

}  // namespace

std::vector<HostFacts> facts_of(const std::vector<Asked>& asked) {
  std::vector<HostFacts> facts;
  for (const Asked& each : asked)
    if (each.reached) facts.push_back(each.facts);
  return facts;
}

Finding finding_of_unreached(const Asked& asked) {
  if (asked.needs_install)
    return {.id = "mccl-unusable",
            .severity = Severity::problem,
            .what = asked.fault,
            .where = text_of(asked.host),
            .why = "programs that use MCCL cannot run on this host, and the host cannot be checked",
            .cure = cluster::how_to_install(asked.host.name)};
  return {
      .id = "host-unreachable",
      .severity = Severity::problem,
      .what = "the host cannot be queried",
      .where = text_of(asked.host),
      .why = "no rank can be started on this host: " + asked.fault,
      .cure = fmt::format("run ssh {} true, and repair the login until this command prints nothing",
                          asked.host.name)};
}

std::vector<Finding> findings_of_lost(const std::vector<Asked>& asked) {
  std::vector<Finding> findings;
  for (const Asked& each : asked) {
    if (each.lost.empty()) continue;
    findings.push_back(
        {.id = "host-lost",
         .severity = Severity::problem,
         .what = each.lost,
         .where = each.facts.host,
         .why = "a job fails if it loses a host; the remaining tests on this host were not run",
         .cure = fmt::format("find the cause with ssh {} dmesg, then run this command again",
                             each.host.name)});
  }
  return findings;
}

std::vector<Finding> findings_of_silent(const std::vector<Asked>& asked, const char* why) {
  std::vector<Finding> findings;
  for (const Asked& each : asked) {
    if (each.probe_fault.empty()) continue;
    findings.push_back({.id = "probe-silent",
                        .severity = Severity::warning,
                        .what = each.probe_fault,
                        .where = each.facts.host,
                        .why = why,
                        .cure = fmt::format("run ssh {} {} probe and read its output",
                                            each.host.name, each.facts.mccl)});
  }
  return findings;
}

std::string summary_of(const HostFacts& facts) {
  std::string text = facts.os.empty() ? facts.kernel : facts.os;
  text += fmt::format(", {} cores", facts.cores);
  if (facts.memory_gib >= 1) text += fmt::format(", {:.0f} GiB", facts.memory_gib);
  const auto cables = std::ranges::count_if(facts.interfaces, [](const cluster::Interface& i) {
    return i.usable() && i.kind != cluster::InterfaceKind::loopback;
  });
  text += fmt::format(", {} interface{} up", cables, cables == 1 ? "" : "s");
  if (!facts.ports.empty()) {
    const auto used =
        std::ranges::count_if(facts.ports, [](const auto& p) { return !p.peer_id.empty(); });
    text += fmt::format(", {} of {} Thunderbolt ports are connected to computers", used,
                        facts.ports.size());
  }
  if (!facts.rdma.empty()) text += fmt::format(", {} RDMA devices", facts.rdma.size());
  if (!facts.gpus.empty())
    text += fmt::format(", {} x {}", facts.gpus.size(), facts.gpus.front().name);
  return printable(text);
}

}  // namespace mccl::cli::hosts
