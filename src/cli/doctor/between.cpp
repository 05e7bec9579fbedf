#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "cli/doctor/report.h"
#include "cli/hosts/link_tests.h"
#include "cli/probe/protocol.h"
#include "cluster/checks.h"

namespace mccl::cli::doctor {
namespace {

using cluster::Finding;
using cluster::HostFacts;
using cluster::InterfacePath;
using cluster::Severity;
using hosts::LinkTest;

constexpr std::size_t kPorts = probe::kPortRanges.size();
/// Size of a packet that every network carries, in bytes.
constexpr int kSmallPacket = 576;
/// The largest first, with the usual limits of tunnels and cloud networks.
constexpr std::array kUsualPackets = {8900, 4000, 1500, 1492, 1460, 1400, 1280, 1200, 1000, 800};
constexpr std::size_t kMostAgain = 32;
constexpr int kMostRounds = 6;

LinkTest test_of(const InterfacePath& path, std::size_t port) {
  return {path.from.host, path.to.host, path.source, path.target, port};
}

void connect_all(hosts::Inquiry& inquiry, std::vector<InterfacePath>& paths) {
  std::vector<LinkTest> tests;
  for (const InterfacePath& path : paths)
    for (std::size_t port = 0; port < kPorts; ++port) tests.push_back(test_of(path, port));
  const std::vector<hosts::LinkResult> dialled = dial(inquiry, tests);
  for (std::size_t i = 0; i < tests.size(); ++i) {
    InterfacePath& path = paths[i / kPorts];
    path.tried = dialled[i].tried;
    if (path.tried) path.faults.push_back(dialled[i].why);
  }
}

/// Finds the largest packet that passes each path. If even small ones do not arrive, UDP is
/// blocked.
void send_packets(hosts::Inquiry& inquiry, std::vector<InterfacePath>& paths) {
  std::vector<LinkTest> tests;
  std::vector<InterfacePath*> of;
  const auto add = [&](InterfacePath& path, int bytes) {
    tests.push_back(test_of(path, 0));
    tests.back().bytes = bytes;
    of.push_back(&path);
  };
  const auto send = [&] {
    const std::vector<bool> arrived = hosts::send_packets(inquiry, tests);
    for (std::size_t i = 0; i < tests.size(); ++i)
      if (arrived[i]) of[i]->packet = std::max(of[i]->packet, tests[i].bytes);
    tests.clear();
    of.clear();
  };
  for (InterfacePath& path : paths) {
    if (!path.good() || path.mtu < kSmallPacket) continue;
    add(path, kSmallPacket);
    add(path, path.mtu);
  }
  send();
  for (InterfacePath& path : paths) {
    if (!path.loses_packets()) continue;
    // A packet as large as the MTU is sent again, because the loss of a single packet need not be
    // due to its size.
    add(path, path.mtu);
    for (const int bytes : kUsualPackets)
      if (bytes < path.mtu) add(path, bytes);
  }
  if (!tests.empty()) send();
}

void measure(hosts::Inquiry& inquiry, const std::vector<InterfacePath*>& paths,
             Clock::time_point limit) {
  std::vector<LinkTest> tests;
  tests.reserve(paths.size());
  for (const InterfacePath* path : paths)
    tests.push_back(test_of(*path, path->faults.front().empty() ? 0 : 1));
  const std::vector<hosts::LinkResult> timed = time_links(inquiry, tests, limit);
  for (std::size_t i = 0; i < tests.size(); ++i) {
    paths[i]->measured = paths[i]->measured || timed[i].tried;
    if (timed[i].bytes_per_s <= paths[i]->bytes_per_s) continue;
    paths[i]->latency_s = timed[i].latency_s;
    paths[i]->bytes_per_s = timed[i].bytes_per_s;
  }
}

/// Such an IPv6 path is not measured, because the rate of a cable does not depend on the version.
bool goes_by_ipv4_too(const std::vector<InterfacePath>& paths, const InterfacePath& path) {
  return path.is_ipv6() && std::ranges::any_of(paths, [&](const InterfacePath& other) {
           return !other.is_ipv6() && other.good() && other.from == path.from &&
                  other.to == path.to;
         });
}

Finding beside_a_job(const std::vector<HostFacts>& facts) {
  std::vector<std::string> names;
  for (const HostFacts& host : facts)
    if (host.ranks > 0) names.push_back(host.host);
  return {.id = "not-timed-job",
          .severity = Severity::note,
          .what = "links from and to these hosts were not timed, because a job runs on the hosts",
          .where = fmt::format("{}", fmt::join(names, ", ")),
          .why = "timing would slow the job down, and its results would be unreliable",
          .cure = "run mccl doctor again when the job has ended, or use --measure"};
}

Finding out_of_time(const std::vector<HostFacts>& facts, const std::vector<InterfacePath*>& left,
                    std::size_t all, const Measuring& measuring) {
  std::set<std::string> names;
  for (const InterfacePath* path : left)
    for (const cluster::End* end : {&path->from, &path->to})
      names.insert(facts[static_cast<std::size_t>(end->host)].host);
  return {.id = "not-timed-time",
          .severity = Severity::warning,
          .what = fmt::format("{} of {} paths were not timed: the limit of {} s was reached",
                              left.size(), all, measuring.longest_s),
          .where = fmt::format("{}", fmt::join(names, ", ")),
          .why = "a slow link among these paths would not be found",
          .cure = fmt::format("allow more time: --measure-for {}", 4 * measuring.longest_s)};
}

/// Slow paths are measured again: a host that is busy for a moment makes a good cable look slow.
std::vector<Finding> measure_all(hosts::Inquiry& inquiry, const std::vector<HostFacts>& facts,
                                 std::vector<InterfacePath>& paths, const Measuring& measuring) {
  const Clock::time_point limit = Clock::now() + std::chrono::seconds(measuring.longest_s);
  std::vector<Finding> findings;
  const auto runs_a_job = [&](const cluster::End& end) {
    return measuring.when == Measuring::When::where_no_job_runs &&
           facts[static_cast<std::size_t>(end.host)].ranks > 0;
  };
  std::vector<InterfacePath*> all;
  bool spared = false;
  for (InterfacePath& path : paths) {
    // A path that loses large packets is not timed, because the bulk transfer would stall.
    if (!path.good() || path.loses_packets() || goes_by_ipv4_too(paths, path)) continue;
    if (runs_a_job(path.from) || runs_a_job(path.to)) {
      spared = true;
    } else {
      all.push_back(&path);
    }
  }
  if (spared) findings.push_back(beside_a_job(facts));
  std::vector<InterfacePath*> some = all;
  for (int round = 0; round < kMostRounds && !some.empty(); ++round) {
    measure(inquiry, some, limit);
    some.clear();
    const std::vector<bool> slow = slow_ones(paths);
    for (std::size_t i = 0; i < paths.size(); ++i)
      if (slow[i] && some.size() < kMostAgain) some.push_back(&paths[i]);
  }
  std::erase_if(all, [](const InterfacePath* path) { return path->measured; });
  if (!all.empty()) {
    const auto possible =
        std::ranges::count_if(paths, [](const InterfacePath& path) { return path.good(); });
    findings.push_back(out_of_time(facts, all, static_cast<std::size_t>(possible), measuring));
  }
  return findings;
}

}  // namespace

std::vector<InterfacePath> look_between(hosts::Inquiry& inquiry, const Measuring& measuring,
                                        std::vector<Finding>& findings) {
  inquiry.start_probes();
  const std::vector<HostFacts> facts = facts_of(inquiry.asked());
  const cluster::CallResults calls = inquiry.call();
  const cluster::Connectivity joined = joined_by(facts, calls.heard);
  std::vector<InterfacePath> paths = cluster::paths_of(facts);
  connect_all(inquiry, paths);
  send_packets(inquiry, paths);
  std::vector<Finding> of_measuring;
  if (measuring.when != Measuring::When::never)
    of_measuring = measure_all(inquiry, facts, paths, measuring);
  append(findings,
         findings_of_silent(inquiry.asked(), "no connection to or from this host can be tested"));
  append(findings, findings_of_lost(inquiry.asked()));
  append(findings, check_calls(facts, calls));
  append(findings, of_measuring);
  append(findings, check_addressing(facts, joined));
  append(findings, check_paths(facts, paths, joined));
  return paths;
}

}  // namespace mccl::cli::doctor
