#include "cluster/cluster_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/settings.h"
#include "cluster/version_check.h"

namespace mccl::cluster {
namespace {

constexpr double kClockOff = 2;  ///< Clock offset that causes a warning, in seconds.

using ValueByHost = std::map<std::string, std::string>;

/// Lists each host with its value, such as "a 1.0, b 1.1".
std::string list_of(const ValueByHost& values) {
  std::string text;
  for (const auto& [host, value] : values)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", host, value);
  return text;
}

bool differ(const ValueByHost& values) {
  return std::ranges::any_of(
      values, [&](const auto& entry) { return entry.second != values.begin()->second; });
}

void check_clocks(std::span<const HostFacts> hosts, std::vector<Finding>& findings) {
  for (const HostFacts& host : hosts) {
    if (std::abs(host.clock_off_s) < kClockOff) continue;
    findings.push_back(
        {"clock-off", Severity::warning,
         fmt::format("its clock is {:.0f} s {} of this machine's", std::abs(host.clock_off_s),
                     host.clock_off_s > 0 ? "ahead" : "behind"),
         host.host,
         "log lines of different hosts cannot be ordered, and certificates and package downloads "
         "may be refused",
         host.system == System::macos ? "sudo sntp -sS time.apple.com"
                                      : "sudo timedatectl set-ntp true"});
  }
}

void check_agreement(std::span<const HostFacts> hosts, std::vector<Finding>& findings) {
  for (const Setting& setting : setting_table()) {
    if (!setting.info.must_agree) continue;
    ValueByHost values;
    for (const HostFacts& host : hosts) {
      const auto found = host.variables.find(std::string(setting.info.variable));
      values[host.host] = found == host.variables.end() ? "(not set)" : found->second;
    }
    if (!differ(values)) continue;
    findings.push_back({"settings-differ", Severity::problem,
                        fmt::format("{} differs", setting.info.variable), list_of(values),
                        "ranks with different values refuse to connect to each other",
                        fmt::format("set the same value on all hosts, or unset it; mccl launch "
                                    "--env {}=VALUE sets it for all ranks",
                                    setting.info.variable)});
  }
}

/// False for loopback and for bridges and tunnels. Container bridges have the same addresses on
/// every host and lead to no other host.
bool is_of_a_cable(const Interface& interface) {
  return !interface.joins && interface.medium != Medium::loopback;
}

void check_addresses(std::span<const HostFacts> hosts, std::vector<Finding>& findings) {
  std::map<Ipv4, std::vector<std::string>> owners;
  for (const HostFacts& host : hosts) {
    for (const Interface& interface : host.interfaces) {
      if (!is_of_a_cable(interface)) continue;
      for (const Network& network : interface.addresses)
        owners[network.address].push_back(fmt::format("{} ({})", host.host, interface.name));
    }
  }
  for (const auto& [address, of] : owners) {
    if (of.size() < 2) continue;
    findings.push_back(
        {"address-twice", Severity::problem,
         fmt::format("the address {} is used {} times", text_of(address), of.size()),
         fmt::format("{}", fmt::join(of, ", ")),
         "packets to this address reach only one of these interfaces, and not always the same one",
         "give each interface its own address; mccl config finds free ones"});
  }
}

/// Finds pairs of addresses with different masks where only one of the two networks contains the
/// other address.
void check_masks(std::span<const HostFacts> hosts, std::vector<Finding>& findings) {
  struct Place {
    std::string text;
    Network network;
  };
  std::vector<Place> places;
  for (const HostFacts& host : hosts)
    for (const Interface& interface : host.interfaces)
      for (const Network& network : interface.addresses)
        if (is_of_a_cable(interface) && interface.usable())
          places.push_back({fmt::format("{} ({})", host.host, interface.name), network});
  for (std::size_t i = 0; i < places.size(); ++i) {
    for (std::size_t k = i + 1; k < places.size(); ++k) {
      const Network& a = places[i].network;
      const Network& b = places[k].network;
      if (a.prefix_bits == b.prefix_bits || a.base() == b.base()) continue;
      if (a.holds(b.address) == b.holds(a.address)) continue;
      findings.push_back(
          {"masks-differ", Severity::warning,
           fmt::format("{} and {} have different masks", text_of(a), text_of(b)),
           fmt::format("{}, {}", places[i].text, places[k].text),
           "one end sends directly to the other, the other end sends through its router",
           "give both the same prefix length (the number after the slash)"});
    }
  }
}

/// Returns a text that differs between any two machines; empty if too little is known.
std::string identity_of(const HostFacts& host) {
  std::string identity;
  for (const Interface& interface : host.interfaces) {
    if (interface.joins || interface.medium == Medium::loopback || interface.mac.empty()) continue;
    identity += fmt::format("{} {}", interface.name, interface.mac);
    for (const Network& network : interface.addresses) identity += " " + text_of(network);
    identity += "\n";
  }
  return identity.empty() ? "" : host.boot + "\n" + identity;
}

}  // namespace

std::vector<Finding> check_identity(std::span<const HostFacts> hosts) {
  std::map<std::string, std::vector<std::string>> names;
  for (const HostFacts& host : hosts)
    if (const std::string identity = identity_of(host); !identity.empty())
      names[identity].push_back(host.host);
  std::vector<Finding> findings;
  for (const auto& [identity, of] : names) {
    if (of.size() < 2) continue;
    findings.push_back(
        {"one-machine", Severity::problem, "these names refer to the same machine",
         fmt::format("{}", fmt::join(of, ", ")),
         "no cable leads from a machine to itself, and measurements there mean nothing",
         "name each machine once; mccl launch --hosts NAME -n 2 starts two ranks there"});
  }
  return findings;
}

std::vector<Finding> check_cluster(std::span<const HostFacts> hosts) {
  std::vector<Finding> findings = check_identity(hosts);
  const bool each_once = findings.empty();
  for (Finding& finding : check_versions(hosts)) findings.push_back(std::move(finding));
  check_clocks(hosts, findings);
  check_agreement(hosts, findings);
  if (each_once) check_addresses(hosts, findings);
  check_masks(hosts, findings);
  return findings;
}

}  // namespace mccl::cluster
