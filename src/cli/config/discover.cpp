#include "cli/config/discover.h"

#include <fmt/format.h>

#include <algorithm>

#include "cluster/checks.h"

namespace mccl::cli::config {
namespace {

using cluster::Choice;
using cluster::Finding;
using cluster::HostFacts;
using cluster::Severity;
using cluster::Shape;

void add(std::vector<Finding>& findings, const std::vector<Finding>& more) {
  findings.insert(findings.end(), more.begin(), more.end());
}

/// Returns links that are worth using: none that is wireless, and none that is less than half as
/// fast as another of the same pair.
std::vector<cluster::Link> worthwhile(std::span<const cluster::Link> links) {
  std::vector<cluster::Link> kept;
  for (const cluster::Link& link : links) {
    const bool beaten = std::ranges::any_of(links, [&](const cluster::Link& other) {
      return other.a.host == link.a.host && other.b.host == link.b.host &&
             other.mbit_per_s > 2 * link.mbit_per_s;
    });
    if (!beaten && link.medium != cluster::Medium::wireless) kept.push_back(link);
  }
  return kept;
}

bool faster_than(const Choice& cables, const Choice& networks) {
  if (networks.shape == Shape::none) return true;
  if (networks.networks.front().medium == cluster::Medium::wireless) return true;
  return std::ranges::all_of(cables.links, [&](const cluster::Link& link) {
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
              "host an IPv6 address",
          .cure = "give each host an address in one network, or use --over cables"};
}

/// Chooses between cables of all kinds and a network. Not called if Thunderbolt alone has been
/// chosen.
Choice choose(const ConfigFlags& flags, std::span<const HostFacts> facts,
              const cluster::Joined& joined) {
  Choice cables = choose_cables(facts, worthwhile(joined.links), flags.backend);
  if (flags.over == "cables" || flags.backend.starts_with("jaccl")) return cables;
  Choice networks = choose_networks(facts, joined);
  if (flags.over == "ethernet" && facts.size() > 1) {
    if (networks.shape == Shape::none) networks.findings.push_back(no_network(facts));
    return networks;
  }
  const bool whole = cables.shape == Shape::ring || cables.shape == Shape::mesh;
  if (flags.over.empty() && whole && faster_than(cables, networks)) return cables;
  return networks.shape == Shape::none ? cables : networks;
}

}  // namespace

Discovered discover(const ConfigFlags& flags, hosts::Inquiry& inquiry,
                    std::span<const HostFacts> facts) {
  Discovered found;
  inquiry.start_probes();
  const cluster::Calls calls = inquiry.call();
  const std::vector<cluster::Heard>& heard = calls.heard;
  const std::vector<cluster::Link> thunderbolt = thunderbolt_links(facts, heard, found.findings);
  const bool only = flags.over == "thunderbolt" || !flags.backend.empty();
  if (flags.over == "thunderbolt" || (flags.over.empty() && !thunderbolt.empty())) {
    found.joined.links = thunderbolt;
    found.choice = choose_cables(facts, thunderbolt, flags.backend);
    if (only || found.choice.shape != Shape::none) return found;
    // If some hosts have no Thunderbolt, other cables or a network may still join all.
    for (Finding& finding : found.choice.findings) finding.severity = Severity::note;
    add(found.findings, found.choice.findings);
  }
  found.joined = joined_by(facts, heard);
  add_links(found.joined, thunderbolt);
  found.choice = choose(flags, facts, found.joined);
  add(found.findings,
      findings_of_silent(inquiry.asked(),
                         "without mccl probe, cables without addresses are not found, and no link "
                         "is tested"));
  add(found.findings, check_calls(facts, calls));
  // If the result is incomplete, there may be cables whose discovery messages did not arrive.
  const bool whole = found.choice.shape != Shape::none && found.choice.findings.empty() &&
                     !(calls.heard.empty() && facts.size() > 1);
  if (!whole && flags.over != "ethernet") add(found.findings, check_silence(facts, calls));
  return found;
}

std::vector<std::string> side_addresses(std::span<const HostFacts> facts,
                                        const cluster::Joined& joined) {
  std::vector<std::string> addresses(facts.size());
  for (std::size_t host = 0; host < facts.size(); ++host) {
    for (const cluster::Interface& interface : facts[host].interfaces) {
      const bool cabled = std::ranges::any_of(joined.links, [&](const cluster::Link& link) {
        const cluster::End end{static_cast<int>(host), interface.name};
        return link.a == end || link.b == end;
      });
      if (interface.usable() && interface.is_of_a_cable() && !cabled && addresses[host].empty())
        addresses[host] = interface.first_address();
    }
  }
  return addresses;
}

}  // namespace mccl::cli::config
