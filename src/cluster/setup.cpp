#include "cluster/setup.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>
#include <utility>

#include "base/value_text.h"
#include "mccl/error.h"

namespace mccl::cluster {
namespace {

/// A shell command and the command that undoes it, both without sudo.
struct Commands {
  std::string command;
  std::string undo;
};

constexpr int kOwnBits = 30;  ///< Prefix length of the networks from give_addresses().

/// An end of a cable, and the addresses of both ends.
struct CableEnd {
  int index = 0;  ///< Index of the host.
  const HostFacts& host;
  const Interface& interface;
  Network address;
  Network peer;

  bool is_mac() const { return host.system == System::macos; }
};

/// Returns both ends of the link. Throws Error for an interface that its host has not reported,
/// because root runs commands that contain the interface's name.
std::vector<CableEnd> ends_of(Hosts hosts, const Addressed& link) {
  std::vector<CableEnd> places;
  const auto add = [&](const End& end, const Network& address, const Network& peer) {
    const HostFacts& host = host_of(hosts, end);
    const Interface* interface = host.interface(end.interface);
    if (interface == nullptr)
      throw Error(fmt::format("{} has no interface {}", host.host, in_quotes(end.interface)));
    places.push_back({end.host, host, *interface, address, peer});
  };
  add(link.link.a, link.a, link.b);
  add(link.link.b, link.b, link.a);
  return places;
}

/// Returns a command that runs the script in sh. `script` must not contain single quotes.
std::string shell(const std::string& script) { return fmt::format("sh -c '{}'", script); }

/// Returns a command that creates a NetworkManager profile for the address. If `lasting` is false,
/// the profile is not saved to disk and takes effect only when it is brought up explicitly.
std::string profile(const std::string& interface, const Network& address, bool lasting) {
  return fmt::format(
      "nmcli connection add save {0} type ethernet con-name mccl-{1} ifname {1} "
      "connection.autoconnect {0} connection.autoconnect-priority 100 ipv4.method manual "
      "ipv4.addresses {2} "
      "ipv6.method link-local",
      lasting ? "yes" : "no", interface, text_of(address));
}

/// Returns a command that runs `first`, then writes the lines to the file. The command copies a
/// file of an earlier set-up to FILE.before, which network managers do not read; `undo` restores
/// that file.
Commands with_file(const std::string& file, const std::vector<std::string>& lines,
                   const std::string& first) {
  return {fmt::format(
              R"({1}; {{ [ ! -e {0} ] || cp -p {0} {0}.before; }} && printf "%s\n" "{2}" > {0})",
              file, first, fmt::join(lines, R"(" ")")),
          fmt::format("rm -f {0}; [ ! -e {0}.before ] || mv {0}.before {0}", file)};
}

Commands with_netplan(const CableEnd& kept) {
  const std::string& name = kept.interface.name;
  // netplan warns about files that users other than root may read.
  const Commands file = with_file(
      fmt::format("/etc/netplan/90-mccl-{}.yaml", name),
      {"network:", "  version: 2", "  ethernets:", fmt::format("    {}:", name),
       "      optional: true", fmt::format("      addresses: [{}]", text_of(kept.address))},
      "umask 077");
  return {fmt::format("{} && netplan generate || {{ {}; exit 1; }}", file.command, file.undo),
          file.undo + "; netplan generate"};
}

/// Returns commands that create a NetworkManager profile on disk. If the profile already exists (in
/// memory since the set-up, or from an earlier run), its autoconnect value is saved for the undo.
Commands with_network_manager(const CableEnd& kept) {
  const std::string& name = kept.interface.name;
  const std::string before = fmt::format("/var/lib/NetworkManager/mccl-{}.before", name);
  return {fmt::format("a=$(nmcli -g connection.autoconnect connection show mccl-{0} 2> /dev/null); "
                      "if [ -n \"$a\" ]; then mkdir -p /var/lib/NetworkManager && echo $a > {1} && "
                      "nmcli connection modify mccl-{0} connection.autoconnect yes; "
                      "else rm -f {1}; {2}; fi",
                      name, before, profile(name, kept.address, true)),
          fmt::format("if [ -s {1} ]; then nmcli connection modify mccl-{0} connection.autoconnect "
                      "$(cat {1}); rm -f {1}; else nmcli connection delete mccl-{0} 2> /dev/null; "
                      "! nmcli connection show mccl-{0} > /dev/null 2>&1; fi",
                      name, before)};
}

Commands with_networkd(const CableEnd& kept) {
  const std::string& name = kept.interface.name;
  // systemd-networkd uses the first matching file. "05" sorts before the usual names, so this file
  // takes precedence.
  return with_file(fmt::format("/etc/systemd/network/05-mccl-{}.network", name),
                   {"[Match]", "Name=" + name, "", "[Link]", "RequiredForOnline=no", "",
                    "[Network]", "LinkLocalAddressing=ipv6", "Address=" + text_of(kept.address)},
                   "mkdir -p /etc/systemd/network");
}

Commands with_networksetup(const CableEnd& kept) {
  const std::string service = "mccl " + kept.interface.name;
  // networksetup creates a service from the name of a port. The list of ports has that name on the
  // line before the device name.
  const std::string port = fmt::format(
      R"(p=$(networksetup -listallhardwareports | sed -n "/^Hardware Port: /{{s///;h;}}; /^Device: {}$/{{g;p;}}"))",
      kept.interface.name);
  return {fmt::format(R"({0}; networksetup -removenetworkservice "{1}" > /dev/null 2>&1; )"
                      R"(networksetup -createnetworkservice "{1}" "$p" && )"
                      R"(networksetup -setmanual "{1}" {2} {3})",
                      port, service, text_of(kept.address.address),
                      text_of(mask_of(kept.address.prefix_bits))),
          fmt::format("networksetup -removenetworkservice \"{}\"", service)};
}

/// Returns the commands for the host's network manager. On Linux, they do nothing if the host's
/// configuration already contains the address, because another file would replace that
/// configuration. They fail for a bond or a VLAN, whose file would need the complete configuration.
Commands commands_of(const CableEnd& kept) {
  const std::string& manager = kept.host.network_manager;
  if (manager == "networksetup") {
    const Commands commands = with_networksetup(kept);
    return {shell(commands.command), commands.undo};
  }
  const Commands commands = manager == "netplan"          ? with_netplan(kept)
                            : manager == "NetworkManager" ? with_network_manager(kept)
                                                          : with_networkd(kept);
  const std::string is_there = fmt::format(
      "grep -rqswF --exclude=\"*mccl-{}*\" \"{}\" /etc/netplan /etc/systemd/network "
      "/etc/NetworkManager/system-connections",
      kept.interface.name, text_of(kept.address));
  const std::string refusal = fmt::format(
      "if [ -e /sys/class/net/{0}/bonding ] || [ -e /proc/net/vlan/{0} ]; then echo {0} is a bond "
      "or a VLAN: make its address permanent by hand; exit 1; fi",
      kept.interface.name);
  return {shell(fmt::format("{} || {{ {}; {}; }}", is_there, refusal, commands.command)),
          shell(fmt::format("{} || {{ {}; }}", is_there, commands.undo))};
}

/// Throws Error if the network manager of a host cannot keep an address. The message lists all
/// reasons.
void refuse_what_cannot_be_kept(std::span<const CableEnd> all) {
  std::set<std::string> faults;
  for (const CableEnd& kept : all) {
    if (kept.host.network_manager.empty())
      faults.insert(fmt::format("{} has none of netplan, NetworkManager and systemd-networkd",
                                kept.host.host));
    // netplan merges the addresses of all its files; the other managers replace the interface's
    // other addresses.
    for (const Network& other : kept.interface.ipv4())
      if (other != kept.address && kept.host.network_manager != "netplan")
        faults.insert(fmt::format("{} of {} also has the address {}, which would be lost",
                                  kept.interface.name, kept.host.host, text_of(other)));
  }
  if (faults.empty()) return;
  throw Error(fmt::format(
      "--persist cannot keep the addresses: {}; nothing was changed. Leave --persist out, and make "
      "the addresses permanent by hand",
      fmt::join(faults, "; ")));
}

/// Returns the commands that give an interface an address until the next restart, on a host where
/// NetworkManager runs. The commands register the address with NetworkManager, which removes
/// unknown addresses when DHCP fails.
Commands network_manager_commands(const std::string& interface, const Network& address) {
  const std::string own = text_of(address);
  // State 10 is "unmanaged": NetworkManager then removes no addresses, so `ip` suffices.
  return {shell(fmt::format("if nmcli -g GENERAL.STATE device show {0} | grep -q \"^10 \"; "
                            "then ip addr add {1} dev {0}; "
                            "else {2} && nmcli connection up mccl-{0}; fi",
                            interface, own, profile(interface, address, false))),
          // NetworkManager removes the address with a delay, or not at all, so this command deletes
          // the address itself.
          shell(fmt::format("nmcli connection delete mccl-{0}; ip addr del {1} dev {0}; "
                            "! ip addr show dev {0} | grep -q \" {1} \"",
                            interface, own))};
}

/// Returns commands that take the interface out of its bridge and bring the interface up. On macOS,
/// the commands bring the bridge down instead of removing the interface. `bridges` collects these
/// bridges, so that each is brought down once.
std::vector<Commands> preparation_of(const CableEnd& end,
                                     std::set<std::pair<int, std::string>>& bridges) {
  const System system = end.host.system;
  const std::string& name = end.interface.name;
  const std::string& bridge = end.interface.bridge;
  std::vector<Commands> all;
  if (!bridge.empty() && !end.is_mac())
    all.push_back({fmt::format("ip link set {} nomaster", name),
                   fmt::format("ip link set {} master {}", name, bridge)});
  if (!bridge.empty() && end.is_mac() && bridges.insert({end.index, bridge}).second)
    all.push_back({command_to_set(system, bridge, "down"), command_to_set(system, bridge, "up")});
  if (!end.interface.up)
    all.push_back({command_to_set(system, name, "up"), command_to_set(system, name, "down")});
  return all;
}

/// Returns commands that add the address to the interface, which keeps its present addresses.
std::vector<Commands> gift_of(const CableEnd& end) {
  const std::string& name = end.interface.name;
  // A profile is used only if the interface has no IPv4 address, because a profile replaces all
  // addresses.
  if (end.host.network_manager == "NetworkManager" && !end.interface.has_ipv4())
    return {network_manager_commands(name, end.address)};
  if (!end.is_mac())
    return {{fmt::format("ip addr add {} dev {}", text_of(end.address), name),
             command_to_remove(end.host.system, name, text_of(end.address))}};
  // Without a host route, macOS sends packets for the peer through the first of several interfaces.
  const std::string peer = text_of(end.peer.address);
  return {{fmt::format("ifconfig {} inet {} netmask {} alias", name, text_of(end.address.address),
                       text_of(mask_of(end.address.prefix_bits))),
           command_to_remove(end.host.system, name, text_of(end.address))},
          {fmt::format("route -n add -host {} -interface {}", peer, name),
           fmt::format("route -n delete -host {}", peer)}};
}

}  // namespace

std::string command_to_set(System system, const std::string& interface, std::string_view setting) {
  const char* program = system == System::macos ? "ifconfig" : "ip link set";
  return fmt::format("{} {} {}", program, interface, setting);
}

std::string command_to_remove(System system, const std::string& interface,
                              const std::string& address) {
  if (system != System::macos) return fmt::format("ip addr del {} dev {}", address, interface);
  const bool ipv6 = address.find(':') != address.npos;
  return fmt::format("ifconfig {} {} {} -alias", interface, ipv6 ? "inet6" : "inet",
                     address.substr(0, address.find('/')));
}

SetupStep step_of(int host, const HostFacts& facts, const std::string& command,
                  const std::string& undo) {
  const std::string sudo = facts.is_root ? "" : "sudo ";
  return {host, sudo + command, sudo + undo};
}

std::vector<SetupStep> setup_steps(Hosts hosts, std::span<const Addressed> links) {
  std::vector<SetupStep> steps;
  std::set<std::pair<int, std::string>> bridges;
  for (const Addressed& link : links) {
    if (link.keeps) continue;
    for (const CableEnd& end : ends_of(hosts, link))
      for (const auto& all : {preparation_of(end, bridges), gift_of(end)})
        for (const Commands& each : all)
          steps.push_back(step_of(end.index, end.host, each.command, each.undo));
  }
  return steps;
}

std::vector<SetupStep> persist_steps(Hosts hosts, std::span<const Addressed> links) {
  std::vector<CableEnd> all;
  for (const Addressed& link : links)
    if (!link.keeps || link.a.prefix_bits == kOwnBits)
      for (const CableEnd& end : ends_of(hosts, link)) all.push_back(end);
  refuse_what_cannot_be_kept(all);
  std::vector<SetupStep> steps;
  std::set<int> bridged;
  for (const CableEnd& end : all) {
    if (end.is_mac() && !end.interface.bridge.empty() && bridged.insert(end.index).second)
      steps.push_back(step_of(end.index, end.host,
                              "networksetup -setnetworkserviceenabled \"Thunderbolt Bridge\" off",
                              "networksetup -setnetworkserviceenabled \"Thunderbolt Bridge\" on"));
    const Commands commands = commands_of(end);
    steps.push_back(step_of(end.index, end.host, commands.command, commands.undo));
  }
  return steps;
}

}  // namespace mccl::cluster
