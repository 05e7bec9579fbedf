#include "cluster/hostfile_check.h"

#include <fmt/format.h>

#include <algorithm>

namespace mccl::cluster {
namespace {

const Interface* interface_with(const HostFacts& host, const std::string& text) {
  const auto address = parse_ipv4(text);
  const auto address6 = parse_network6(text);
  for (const Interface& interface : host.interfaces) {
    for (const Network& network : interface.addresses)
      if (network.address == address) return &interface;
    for (const Network6& network : interface.addresses6)
      if (address6 && network.address == address6->address) return &interface;
  }
  return nullptr;
}

bool is_slow(const Interface& interface) {
  return interface.medium == Medium::wireless || interface.joins;
}

/// Returns an interface with a cable that could be used instead; null if there is none.
const Interface* cable_of(const HostFacts& host) {
  const auto found = std::ranges::find_if(host.interfaces, [](const Interface& interface) {
    return interface.usable() && !is_slow(interface) && interface.medium != Medium::loopback &&
           !interface.addresses.empty();
  });
  return found == host.interfaces.end() ? nullptr : &*found;
}

void check_address(const HostFacts& host, const std::string& text, const std::string& by,
                   std::vector<Finding>& findings) {
  const Interface* interface = interface_with(host, text);
  // An unknown host name is not a fault, because names are resolved only when used. Nor is an
  // unknown IPv6 address, because hosts report only some of theirs.
  if (interface == nullptr && !parse_ipv4(text)) return;
  if (interface == nullptr) {
    findings.push_back({"hostfile-address", Severity::problem,
                        fmt::format("{} selects {}, but the host has no such address", by, text),
                        host.host,
                        "its ranks cannot listen there; macOS changes 169.254 addresses on its own",
                        "run mccl config to write the hostfile again"});
    return;
  }
  const Interface* cable = cable_of(host);
  if (!is_slow(*interface) || cable == nullptr) return;
  findings.push_back(
      {"hostfile-slow-interface", Severity::warning,
       fmt::format("{} selects {}, which is {} ({}), although the host has a cable: {}", by, text,
                   interface->name,
                   interface->medium == Medium::wireless ? "Wi-Fi" : "a tunnel or a bridge",
                   cable->name),
       host.host, "all data of the ranks passes through the slower interface",
       fmt::format("select {}, or select no address: MCCL then finds the best one by itself",
                   text_of(cable->addresses.front().address))});
}

}  // namespace

std::vector<Finding> check_hostfile(std::span<const HostFacts> hosts,
                                    std::span<const std::vector<std::string>> addresses) {
  std::vector<Finding> findings;
  for (std::size_t host = 0; host < hosts.size(); ++host) {
    for (const std::string& text : addresses[host])
      check_address(hosts[host], text, "the hostfile", findings);
    for (const std::string& name : hosts[host].items_of("MCCL_IFNAME")) {
      const Interface* interface = hosts[host].interface(name);
      if (interface != nullptr && !interface->addresses.empty())
        check_address(hosts[host], text_of(interface->addresses.front().address), "MCCL_IFNAME",
                      findings);
    }
    // check_settings() reports addresses that the host does not have.
    for (const std::string& text : hosts[host].items_of("MCCL_LISTEN_ADDR")) {
      if (interface_with(hosts[host], text) != nullptr)
        check_address(hosts[host], text, "MCCL_LISTEN_ADDR", findings);
    }
  }
  return findings;
}

}  // namespace mccl::cluster
