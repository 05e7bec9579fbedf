#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>

#include "base/settings.h"
#include "cluster/checks.h"

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

void check_clocks(Hosts hosts, Findings& findings) {
  for (const HostFacts& host : hosts) {
    if (std::abs(host.clock_off_s) < kClockOff) continue;
    findings.push_back(
        {"clock-off", Severity::warning,
         fmt::format("the host's clock is {:.0f} s {} this machine's", std::abs(host.clock_off_s),
                     host.clock_off_s > 0 ? "ahead of" : "behind"),
         host.host,
         "log lines of different hosts cannot be ordered, and certificates and package downloads "
         "may be refused",
         host.system == System::macos ? "sudo sntp -sS time.apple.com"
                                      : "sudo timedatectl set-ntp true"});
  }
}

void check_agreement(Hosts hosts, Findings& findings) {
  for (const Setting& setting : setting_table()) {
    if (!setting.info.must_agree) continue;
    ValueByHost values;
    for (const HostFacts& host : hosts) {
      const auto found = host.settings.find(std::string(setting.info.variable));
      values[host.host] = found == host.settings.end() ? "(not set)" : found->second;
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

void check_addresses(Hosts hosts, Findings& findings) {
  std::map<IpAddress, std::vector<std::string>> owners;
  for (const HostFacts& host : hosts) {
    for (const Interface& interface : host.interfaces) {
      if (!interface.is_of_a_cable()) continue;
      for (const Network& network : interface.ipv4())
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

/// Finds two addresses of which only one lies in the network of the other, because their prefix
/// lengths differ.
void check_masks(Hosts hosts, Findings& findings) {
  struct Place {
    std::string text;
    Network network;
  };
  std::vector<Place> places;
  for (const HostFacts& host : hosts)
    for (const Interface& interface : host.interfaces)
      for (const Network& network : interface.ipv4())
        if (interface.may_join_hosts())
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
           "one end sends directly to the other end, which answers through its router",
           "give both addresses the same prefix length (the number after the slash)"});
    }
  }
}

/// Returns a text that is equal for one machine under two names, but differs between machines.
/// Empty if no cabled interface of the host has a known MAC address.
std::string identity_of(const HostFacts& host) {
  std::string identity;
  for (const Interface& interface : host.interfaces) {
    if (!interface.is_of_a_cable() || interface.mac.empty()) continue;
    identity += fmt::format("{} {}", interface.name, interface.mac);
    for (const Network& network : interface.ipv4()) identity += " " + text_of(network);
    identity += "\n";
  }
  return identity.empty() ? "" : host.boot + "\n" + identity;
}

/// Prefix of NCCL's packages; the rest of the name is the CUDA version.
constexpr std::string_view kNccl = "nvidia-nccl-";

struct Installed {
  std::string package;  ///< Name of the package in pip.
  std::string version;
};

/// Keyed by host name.
using InstalledByHost = std::map<std::string, Installed>;

/// Returns "nccl" for each of NCCL's packages, whose names differ in the CUDA version. Returns the
/// name of any other package unchanged.
std::string family_of(const std::string& package) {
  return package.starts_with(kNccl) ? "nccl" : package;
}

/// Groups the installed versions by the family of the package (family_of()). Skips versions that
/// could not be parsed, because another finding reports them.
std::map<std::string, InstalledByHost> families_of(Hosts hosts) {
  std::map<std::string, InstalledByHost> families;
  for (const HostFacts& host : hosts)
    for (const auto& [package, version] : host.versions)
      if (!version.empty()) families[family_of(package)][host.host] = {package, version};
  return families;
}

void check_differences(const InstalledByHost& installed, Findings& findings) {
  const Installed& first = installed.begin()->second;
  const bool same_names = std::ranges::all_of(
      installed, [&](const auto& each) { return each.second.package == first.package; });
  ValueByHost values;
  for (const auto& [host, each] : installed)
    values[host] = same_names ? each.version : each.package + " " + each.version;
  if (!differ(values)) return;
  const std::string name = same_names ? first.package : family_of(first.package);
  const bool ours = name == "mccl" || name == "mccl-engine";
  if (name == "python" || name == "numpy") {
    findings.push_back({"version-differs", Severity::note,
                        fmt::format("versions of {} differ", name), list_of(values),
                        "programs may behave differently on these hosts", ""});
    return;
  }
  findings.push_back({"version-differs", ours ? Severity::problem : Severity::warning,
                      fmt::format("versions of {} differ", name), list_of(values),
                      ours ? "ranks with different wire protocols refuse to connect to each other"
                           : "objects that one version pickled or compiled may not load or run "
                             "with another version",
                      ours
                          ? how_to_install("each")
                          : fmt::format("install the same version on all hosts: pip install {}=={}",
                                        first.package, first.version)});
}

/// A package whose absence may make a job fail on a host, although the job works on other hosts.
struct Needed {
  std::string_view family;
  std::string_view why;
};

constexpr std::array kNeeded = {
    Needed{"torch", "a program that imports torch fails at start-up on this host"},
    Needed{"mlx", "a program that imports mlx fails at start-up on this host"},
    Needed{"nccl",
           "the GPUs of this host cannot take part in calls for which other ranks use NCCL"},
};

/// True if the host needs the package. NCCL is needed only on hosts with GPUs. MLX is mostly used
/// on Macs, so it is needed only if a host of the same system has it.
bool should_have(const HostFacts& host, std::string_view family,
                 std::span<const HostFacts* const> owners) {
  if (family == "nccl") return !host.gpus.empty();
  return family != "mlx" || std::ranges::any_of(owners, [&](const HostFacts* owner) {
           return owner->system == host.system;
         });
}

void check_missing(Hosts hosts, const Needed& needed, const InstalledByHost& installed,
                   Findings& findings) {
  std::vector<const HostFacts*> owners;
  for (const HostFacts& host : hosts)
    if (installed.contains(host.host)) owners.push_back(&host);
  const Installed& first = installed.begin()->second;
  for (const HostFacts& host : hosts) {
    const bool has_some = std::ranges::any_of(
        host.versions, [&](const auto& each) { return family_of(each.first) == needed.family; });
    if (has_some || !should_have(host, needed.family, owners)) continue;
    findings.push_back(
        {"package-missing", Severity::warning,
         fmt::format("{} is not installed, but {} of {} hosts {} it", needed.family, owners.size(),
                     hosts.size(), owners.size() == 1 ? "has" : "have"),
         host.host, std::string(needed.why),
         fmt::format("run pip install {}=={} with the Python of this host's ranks; \"python\" in "
                     "the hostfile selects another Python",
                     first.package, first.version)});
  }
}

/// Returns a usable cabled interface of the host with an IPv4 address, to suggest instead of the
/// selected interface; null if the host has no such interface.
const Interface* cable_of(const HostFacts& host) {
  const auto found = std::ranges::find_if(host.interfaces, [](const Interface& interface) {
    return interface.may_join_hosts() && interface.has_ipv4() &&
           interface.kind != InterfaceKind::wireless;
  });
  return found == host.interfaces.end() ? nullptr : &*found;
}

void check_address(const HostFacts& host, const std::string& text, const std::string& by,
                   Findings& findings) {
  const Interface* interface = host.interface_with(text);
  // An unknown host name is not a fault, because names are resolved only when used. An unknown IPv6
  // address is not a fault either, because hosts report only some of their IPv6 addresses.
  const auto address = parse_address(text);
  if (interface == nullptr && (!address || address->is_ipv6)) return;
  if (interface == nullptr) {
    findings.push_back({"hostfile-address", Severity::problem,
                        fmt::format("{} selects {}, but the host has no such address", by, text),
                        host.host,
                        "ranks on this host cannot listen at this address; macOS changes 169.254 "
                        "addresses on its own",
                        "run mccl config to write the hostfile again"});
    return;
  }
  const Interface* cable = cable_of(host);
  const bool wireless = interface->kind == InterfaceKind::wireless;
  if (!(wireless || interface->joins) || cable == nullptr) return;
  findings.push_back(
      {"hostfile-slow-interface", Severity::warning,
       fmt::format("{} selects {}, which is {} ({}), although the host has a cable: {}", by, text,
                   interface->name, wireless ? "Wi-Fi" : "a tunnel or a bridge", cable->name),
       host.host, "all data of the ranks passes through the slower interface",
       fmt::format("select {}, or select no address: MCCL then chooses the best address by itself",
                   text_of(cable->ipv4().front().address))});
}

}  // namespace

Findings check_identity(Hosts hosts) {
  std::map<std::string, std::vector<std::string>> names;
  for (const HostFacts& host : hosts)
    if (const std::string identity = identity_of(host); !identity.empty())
      names[identity].push_back(host.host);
  Findings findings;
  for (const auto& [identity, of] : names) {
    if (of.size() < 2) continue;
    findings.push_back(
        {"one-machine", Severity::problem, "these names refer to the same machine",
         fmt::format("{}", fmt::join(of, ", ")),
         "no cable joins a machine to itself, and measurements between the two names are "
         "meaningless",
         "name each machine once; mccl launch --hosts NAME -n 2 starts two ranks on it"});
  }
  return findings;
}

Findings check_cluster(Hosts hosts) {
  Findings findings = check_identity(hosts);
  const bool each_once = findings.empty();
  append(findings, check_versions(hosts));
  check_clocks(hosts, findings);
  check_agreement(hosts, findings);
  if (each_once) check_addresses(hosts, findings);
  check_masks(hosts, findings);
  return findings;
}

std::string how_to_install(const std::string& host) {
  return fmt::format(
      "install the same build on the host: run make wheel in the sources of MCCL on this machine, "
      "copy the wheel with scp build/wheels/mccl_engine-*.whl {}: and run pip install "
      "--force-reinstall ./mccl_engine-*.whl on the host; ssh must find mccl in its PATH, or "
      "beside the \"python\" of the hostfile",
      host);
}

Findings check_versions(Hosts hosts) {
  Findings findings;
  const std::map<std::string, InstalledByHost> families = families_of(hosts);
  for (const auto& [family, installed] : families) {
    check_differences(installed, findings);
    const auto needed = std::ranges::find(kNeeded, family, &Needed::family);
    if (needed != kNeeded.end()) check_missing(hosts, *needed, installed, findings);
  }
  return findings;
}

Findings check_hostfile(Hosts hosts, std::span<const std::vector<std::string>> addresses) {
  Findings findings;
  for (std::size_t host = 0; host < hosts.size(); ++host) {
    for (const std::string& text : addresses[host])
      check_address(hosts[host], text, "the hostfile", findings);
    for (const std::string& name : hosts[host].items_of("MCCL_IFNAME")) {
      const Interface* interface = hosts[host].interface(name);
      if (interface != nullptr && interface->has_ipv4())
        check_address(hosts[host], text_of(interface->ipv4().front().address), "MCCL_IFNAME",
                      findings);
    }
    // Skip addresses that the host does not have, because check_settings() reports them.
    for (const std::string& text : hosts[host].items_of("MCCL_LISTEN_ADDR")) {
      if (hosts[host].interface_with(text) != nullptr)
        check_address(hosts[host], text, "MCCL_LISTEN_ADDR", findings);
    }
  }
  return findings;
}

}  // namespace mccl::cluster
