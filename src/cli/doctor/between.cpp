#include "cli/doctor/between.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "cli/hosts/trials.h"

namespace mccl::cli::doctor {
namespace {

using cluster::HostFacts;
using cluster::Path;
using cluster::Severity;
using hosts::Trial;

/// MCCL's own of rank 0, and the one at which mccl launch has ranks meet.
const std::vector<std::uint16_t> kPorts = {29600, 32321};
/// Every host passes on packets of so few bytes.
constexpr int kSmallPacket = 576;
/// Of tunnels, of networks in clouds, and so on.
constexpr std::array kUsualPackets = {8900, 4000, 1500, 1492, 1460, 1400, 1280, 1200, 1000, 800};
/// What is measured takes half a second each.
constexpr std::size_t kMostMeasured = 256;
constexpr std::size_t kMostAgain = 32;
constexpr int kMostRounds = 6;

Trial trial_of(const Path& path, std::size_t port) {
  return {path.from.host, path.to.host, path.source, path.target, port};
}

void connect_all(hosts::Inquiry& inquiry, std::vector<Path>& paths) {
  std::vector<Trial> trials;
  for (const Path& path : paths)
    for (std::size_t port = 0; port < kPorts.size(); ++port) trials.push_back(trial_of(path, port));
  const std::vector<hosts::Dialled> dialled = dial(inquiry, trials);
  for (std::size_t i = 0; i < trials.size(); ++i) {
    Path& path = paths[i / kPorts.size()];
    path.tried = dialled[i].tried;
    if (path.tried) path.faults.push_back(dialled[i].why);
  }
}

/// The largest of some sizes that arrives, where the whole MTU does not. A path on which not even
/// small packets arrive lets no UDP in, which says nothing of sizes.
void send_packets(hosts::Inquiry& inquiry, std::vector<Path>& paths) {
  std::vector<Trial> trials;
  std::vector<int> sizes;
  std::vector<std::size_t> of;
  const auto add = [&](std::size_t path, int bytes) {
    trials.push_back(trial_of(paths[path], 0));
    sizes.push_back(bytes);
    of.push_back(path);
  };
  const auto send = [&] {
    const std::vector<bool> arrived = hosts::send_packets(inquiry, trials, sizes);
    for (std::size_t i = 0; i < trials.size(); ++i)
      if (arrived[i]) paths[of[i]].packet = std::max(paths[of[i]].packet, sizes[i]);
    trials.clear();
    sizes.clear();
    of.clear();
  };
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (!paths[i].good() || paths[i].mtu < kSmallPacket) continue;
    add(i, kSmallPacket);
    add(i, paths[i].mtu);
  }
  send();
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (paths[i].packet == 0 || paths[i].packet >= paths[i].mtu) continue;
    add(i, paths[i].mtu);  // once more: packets get lost for other reasons
    for (const int bytes : kUsualPackets)
      if (bytes < paths[i].mtu) add(i, bytes);
  }
  if (!trials.empty()) send();
}

void measure(hosts::Inquiry& inquiry, const std::vector<Path*>& paths) {
  std::vector<Trial> trials;
  trials.reserve(paths.size());
  for (const Path* path : paths)
    trials.push_back(trial_of(*path, path->faults.front().empty() ? 0 : 1));
  const std::vector<hosts::Timed> timed = time_links(inquiry, trials);
  for (std::size_t i = 0; i < trials.size(); ++i) {
    if (timed[i].bytes_per_s <= paths[i]->bytes_per_s) continue;
    paths[i]->latency_s = timed[i].latency_s;
    paths[i]->bytes_per_s = timed[i].bytes_per_s;
  }
}

/// What a cable carries does not depend on what its ends are called.
bool goes_by_ipv4_too(const std::vector<Path>& paths, const Path& path) {
  return path.is_ipv6() && std::ranges::any_of(paths, [&](const Path& other) {
           return !other.is_ipv6() && other.good() && other.from == path.from &&
                  other.to == path.to;
         });
}

/// A host that is busy for a moment makes a good cable look slow: those are measured again.
void measure_all(hosts::Inquiry& inquiry, std::vector<Path>& paths) {
  std::vector<Path*> some;
  for (Path& path : paths) {
    // Where large packets get lost, a stream of them would stand still.
    const bool whole = path.packet == 0 || path.packet >= path.mtu;
    if (path.good() && whole && !goes_by_ipv4_too(paths, path) && some.size() < kMostMeasured)
      some.push_back(&path);
  }
  for (int round = 0; round < kMostRounds && !some.empty(); ++round) {
    measure(inquiry, some);
    some.clear();
    const std::vector<bool> slow = slow_ones(paths);
    for (std::size_t i = 0; i < paths.size(); ++i)
      if (slow[i] && some.size() < kMostAgain) some.push_back(&paths[i]);
  }
}

}  // namespace

Between look_between(hosts::Inquiry& inquiry) {
  Between between;
  inquiry.start_probes(kPorts);
  std::vector<HostFacts> facts;
  for (const hosts::Asked& asked : inquiry.asked()) {
    facts.push_back(asked.facts);
    if (asked.probe_fault.empty()) continue;
    between.findings.push_back({.severity = Severity::warning,
                                .what = asked.probe_fault,
                                .where = asked.facts.host,
                                .why = "no connection to or from it can be tried",
                                .cure = fmt::format("ssh {} {} probe, and look what it says",
                                                    asked.host.name, asked.facts.mccl)});
  }
  between.joined = joined_by(facts, inquiry.call());
  between.paths = cluster::paths_of(facts);
  connect_all(inquiry, between.paths);
  send_packets(inquiry, between.paths);
  measure_all(inquiry, between.paths);
  for (auto&& more :
       {hosts::findings_of_lost(inquiry.asked()), check_addressing(facts, between.joined),
        check_paths(facts, between.paths, between.joined)})
    between.findings.insert(between.findings.end(), more.begin(), more.end());
  return between;
}

}  // namespace mccl::cli::doctor
