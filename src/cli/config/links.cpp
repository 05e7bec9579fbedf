#include "cli/config/links.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/hosts/link_tests.h"
#include "cluster/checks.h"
#include "cluster/text.h"

namespace mccl::cli::config {
namespace {

using cluster::Addressed;
using cluster::Finding;
using cluster::HostFacts;
using cluster::Severity;
using cluster::Topology;
using cluster::TopologyChoice;
using hosts::LinkResult;
using hosts::LinkTest;

/// Drops wireless links, and links that are less than half as fast as another between the hosts.
std::vector<cluster::CableLink> worthwhile(std::span<const cluster::CableLink> links) {
  std::vector<cluster::CableLink> kept;
  for (const cluster::CableLink& link : links) {
    const bool beaten = std::ranges::any_of(links, [&](const cluster::CableLink& other) {
      return other.a.host == link.a.host && other.b.host == link.b.host &&
             other.mbit_per_s > 2 * link.mbit_per_s;
    });
    if (!beaten && link.medium != cluster::InterfaceKind::wireless) kept.push_back(link);
  }
  return kept;
}

bool faster_than(const TopologyChoice& cables, const TopologyChoice& networks) {
  if (networks.shape == Topology::none) return true;
  if (networks.networks.front().medium == cluster::InterfaceKind::wireless) return true;
  return std::ranges::all_of(cables.links, [&](const cluster::CableLink& link) {
    return link.mbit_per_s >= networks.networks.front().mbit_per_s;
  });
}

Finding no_network(std::span<const HostFacts> facts) {
  return {.id = "no-network",
          .severity = Severity::problem,
          .what = "no network joins all hosts",
          .where = names_of(facts),
          .why =
              "--over ethernet needs a network in which every host has an IPv4 address, or every "
              "host has an IPv6 address",
          .cure = "give all hosts addresses in one network, or use --over cables"};
}

/// Not called if discover() has already chosen Thunderbolt cables.
TopologyChoice choose(const ConfigFlags& flags, std::span<const HostFacts> facts,
                      const cluster::Connectivity& joined) {
  TopologyChoice cables = choose_cables(facts, worthwhile(joined.links), flags.backend);
  if (flags.over == "cables" || flags.backend.starts_with("jaccl")) return cables;
  TopologyChoice networks = choose_networks(facts, joined);
  if (flags.over == "ethernet" && facts.size() > 1) {
    if (networks.shape == Topology::none) networks.findings.push_back(no_network(facts));
    return networks;
  }
  const bool whole = cables.shape == Topology::ring || cables.shape == Topology::mesh;
  if (flags.over.empty() && whole && faster_than(cables, networks)) return cables;
  return networks.shape == Topology::none ? cables : networks;
}

constexpr std::chrono::seconds kForTiming{120};

void add_both_ways(std::vector<LinkTest>& tests, int a, const std::string& at_a, int b,
                   const std::string& at_b) {
  tests.push_back({a, b, at_a, at_b});
  tests.push_back({b, a, at_b, at_a});
}

/// Tests each host with the next one in `order`, in both directions.
void add_network(std::vector<LinkTest>& tests, std::span<const HostFacts> facts,
                 const cluster::Wire& wire, std::span<const int> order) {
  const auto addresses = addresses_in(facts, wire);
  std::vector<std::pair<int, std::string>> places;
  for (const int host : order)
    if (const auto found = addresses.find(host); found != addresses.end()) places.push_back(*found);
  for (std::size_t i = 0; i < places.size() && places.size() > 1; ++i) {
    const auto& next = places[(i + 1) % places.size()];
    if (places.size() == 2 && i == 1) break;
    add_both_ways(tests, places[i].first, places[i].second, next.first, next.second);
  }
}

}  // namespace

Discovered discover(const ConfigFlags& flags, hosts::Inquiry& inquiry,
                    std::span<const HostFacts> facts, std::vector<Finding>& findings) {
  Discovered found;
  inquiry.start_probes();
  const cluster::CallResults calls = inquiry.call();
  const std::vector<cluster::Heard>& heard = calls.heard;
  const std::vector<cluster::CableLink> thunderbolt = thunderbolt_links(facts, heard, findings);
  const bool only = flags.over == "thunderbolt" || !flags.backend.empty();
  if (flags.over == "thunderbolt" || (flags.over.empty() && !thunderbolt.empty())) {
    found.joined.links = thunderbolt;
    found.choice = choose_cables(facts, thunderbolt, flags.backend);
    if (only || found.choice.shape != Topology::none) return found;
    // Cables of other kinds or a network may still join the hosts, so the findings about
    // Thunderbolt become notes.
    for (Finding& finding : found.choice.findings) finding.severity = Severity::note;
    append(findings, found.choice.findings);
  }
  found.joined = joined_by(facts, heard);
  add_links(found.joined, thunderbolt);
  found.choice = choose(flags, facts, found.joined);
  append(findings, findings_of_silent(
                       inquiry.asked(),
                       "without mccl probe, cables without addresses are not found, and no link "
                       "is tested"));
  append(findings, check_calls(facts, calls));
  // If not all hosts are joined, a cable may exist whose discovery messages did not arrive.
  // check_silence() lists the interfaces that exchanged no messages.
  const bool whole = found.choice.shape != Topology::none && found.choice.findings.empty() &&
                     !(calls.heard.empty() && facts.size() > 1);
  if (!whole && flags.over != "ethernet") append(findings, check_silence(facts, calls));
  return found;
}

std::vector<std::string> side_addresses(std::span<const HostFacts> facts,
                                        const cluster::Connectivity& joined) {
  std::vector<std::string> addresses(facts.size());
  for (std::size_t host = 0; host < facts.size(); ++host) {
    for (const cluster::Interface& interface : facts[host].interfaces) {
      const bool cabled = std::ranges::any_of(joined.links, [&](const cluster::CableLink& link) {
        const cluster::End end{static_cast<int>(host), interface.name};
        return link.a == end || link.b == end;
      });
      if (interface.may_join_hosts() && !interface.addresses.empty() && !cabled &&
          addresses[host].empty())
        addresses[host] = text_of(interface.addresses.front().address);
    }
  }
  return addresses;
}

std::string exchange(hosts::Inquiry& inquiry, std::span<const HostFacts> facts,
                     const TopologyChoice& choice, std::span<const Addressed> links,
                     std::vector<Finding>& findings) {
  std::vector<LinkTest> tests;
  for (const Addressed& each : links)
    add_both_ways(tests, each.link.a.host, text_of(each.a.address), each.link.b.host,
                  text_of(each.b.address));
  for (const cluster::Wire& wire : choice.networks) add_network(tests, facts, wire, choice.order);
  const std::vector<LinkResult> dialled = dial(inquiry, tests);
  const std::vector<LinkResult> timed = time_links(inquiry, tests, Clock::now() + kForTiming, true);
  append(findings, hosts::findings_of_lost(inquiry.asked()));
  cluster::TableRows rows = {{"from", "to", "latency", "rate"}};
  for (std::size_t i = 0; i < tests.size(); ++i) {
    const LinkTest& test = tests[i];
    const std::string& from = facts[static_cast<std::size_t>(test.from)].host;
    const std::string& to = facts[static_cast<std::size_t>(test.to)].host;
    if (!dialled[i].tried) {
      findings.push_back({"link-untried", Severity::note, "the link was not tested",
                          fmt::format("{} to {}", from, to),
                          "the test could not be started on at least one of the hosts", ""});
    } else if (!dialled[i].good) {
      findings.push_back({"link-dead", Severity::problem,
                          fmt::format("{} does not reach {} at {}: {}", test.source, to,
                                      test.target, dialled[i].why),
                          fmt::format("{} to {}", from, to),
                          "ranks on these hosts could not connect to each other",
                          fmt::format("run mccl doctor --hosts {},{} for details", from, to)});
    } else {
      rows.push_back({fmt::format("{} {}", from, test.source),
                      fmt::format("{} {}", to, test.target),
                      timed[i].good ? fmt::format("{:.1f} us", timed[i].latency_s * 1e6) : "-",
                      timed[i].good ? cluster::rate_text(timed[i].bytes_per_s * 8 / 1e6) : "-"});
    }
  }
  return rows.size() > 1 ? cluster::table_text(rows) : "";
}

}  // namespace mccl::cli::config
