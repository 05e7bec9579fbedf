#include "cluster/call_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace mccl::cluster {
namespace {

constexpr int kCallPort = 29599;  ///< UDP port to which hosts send discovery messages.

const HostFacts& host_of_end(std::span<const HostFacts> hosts, const End& end) {
  return hosts[static_cast<std::size_t>(end.host)];
}

std::string text_of_end(std::span<const HostFacts> hosts, const End& end) {
  return fmt::format("{} ({})", host_of_end(hosts, end).host, end.interface);
}

std::string how_to_let_in(const HostFacts& host, const std::string& interface) {
  if (host.system == System::macos)
    return fmt::format(
        "on {}: System Settings, Network, Firewall: allow incoming connections for mccl",
        host.host);
  return fmt::format(
      "on {}: sudo nft insert rule inet filter input iifname \"{}\" udp dport {} accept, or sudo "
      "ufw "
      "allow {}/udp",
      host.host, interface, kCallPort, kCallPort);
}

bool has_address(const Interface& interface, const std::string& address) {
  return std::ranges::any_of(interface.addresses,
                             [&](const Network& n) { return text_of(n.address) == address; }) ||
         std::ranges::any_of(interface.addresses6,
                             [&](const Network6& n) { return n.address_text() == address; });
}

/// True if the interface's only known neighbour is the machine that runs mccl: ssh connected
/// through this interface, and no other host has an address in its network.
bool leads_to_asker_alone(std::span<const HostFacts> hosts, const HostFacts& host,
                          const Interface& interface) {
  if (host.asked_at.empty() || !has_address(interface, host.asked_at)) return false;
  return std::ranges::none_of(hosts, [&](const HostFacts& other) {
    return &other != &host && std::ranges::any_of(other.interfaces, [&](const Interface& there) {
      return same_network(interface, there);
    });
  });
}

}  // namespace

std::vector<Finding> check_calls(std::span<const HostFacts> hosts, const Calls& calls) {
  std::vector<Finding> findings;
  for (const int host : calls.deaf) {
    findings.push_back({"calls-deaf", Severity::warning,
                        fmt::format("it cannot listen on UDP port {}", kCallPort),
                        hosts[static_cast<std::size_t>(host)].host,
                        "hosts send test packets to this port to find cables; cables to this host "
                        "may not be found",
                        fmt::format("find the process that uses the port: ss -ulpn sport = :{}; "
                                    "IPv6 must not be disabled: sysctl "
                                    "net.ipv6.conf.all.disable_ipv6",
                                    kCallPort)});
  }
  std::set<Heard> heard;
  for (const Heard& each : calls.heard) {
    heard.insert(each);
    heard.insert({each.from, each.at});
  }
  // Receivers of each caller's messages. The caller's firewall drops their answers.
  std::map<End, std::set<End>> hearers;
  for (const Heard& each : calls.unanswered) {
    const bool known = host_of_end(hosts, each.from).interface(each.from.interface) != nullptr &&
                       host_of_end(hosts, each.at).interface(each.at.interface) != nullptr;
    if (known && !heard.contains(each)) hearers[each.from].insert(each.at);
  }
  for (const auto& [caller, ends] : hearers) {
    std::vector<std::string> texts;
    for (const End& end : ends) texts.push_back(text_of_end(hosts, end));
    findings.push_back(
        {"calls-blocked", Severity::warning,
         fmt::format("its test packets arrive at {}, but the answers do not reach it",
                     fmt::join(texts, ", ")),
         text_of_end(hosts, caller),
         fmt::format("a firewall there drops UDP port {}, so the cable appears to be missing",
                     kCallPort),
         how_to_let_in(host_of_end(hosts, caller), caller.interface)});
  }
  return findings;
}

std::vector<Finding> check_silence(std::span<const HostFacts> hosts, const Calls& calls) {
  std::set<End> known;
  for (const auto* calls_of : {&calls.heard, &calls.unanswered})
    for (const Heard& each : *calls_of) known.insert({each.at, each.from});
  std::vector<std::string> silent;
  std::string cure;
  for (std::size_t host = 0; host < hosts.size(); ++host) {
    for (const Interface& interface : hosts[host].interfaces) {
      const End end{static_cast<int>(host), interface.name};
      if (!interface.up || interface.carrier != true || interface.joins ||
          interface.medium == Medium::loopback || known.contains(end) ||
          leads_to_asker_alone(hosts, hosts[host], interface))
        continue;
      silent.push_back(text_of_end(hosts, end));
      if (cure.empty()) cure = how_to_let_in(hosts[host], interface.name);
    }
  }
  if (silent.empty()) return {};
  return {{"calls-silent", Severity::warning,
           "no test packet of another host arrived, although cables are plugged in",
           fmt::format("{}", fmt::join(silent, ", ")),
           fmt::format("if these cables join the given hosts, firewalls drop UDP port {}, to which "
                       "hosts send test packets",
                       kCallPort),
           cure}};
}

}  // namespace mccl::cluster
