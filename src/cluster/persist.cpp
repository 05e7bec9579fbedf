#include "cluster/persist.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "mccl/error.h"

namespace mccl::cluster {
namespace {

constexpr int kOwnBits = 30;  ///< Prefix length of the networks from give_addresses().

/// The address that one interface must have after a restart.
struct Kept {
  const HostFacts& host;
  const Interface& interface;
  Network address;
};

/// Wraps a script for sh. `script` must not contain single quotes.
std::string shell(const std::string& script) { return fmt::format("sh -c '{}'", script); }

/// Creates a NetworkManager profile that gives the interface its address. Unless `lasting`, the
/// profile is not saved to disk and takes effect only when it is brought up explicitly.
std::string profile(const std::string& interface, const Network& address, bool lasting) {
  return fmt::format(
      "nmcli connection add save {0} type ethernet con-name mccl-{1} ifname {1} "
      "connection.autoconnect {0} connection.autoconnect-priority 100 ipv4.method manual "
      "ipv4.addresses {2} "
      "ipv6.method link-local",
      lasting ? "yes" : "no", interface, text_of(address));
}

/// Runs `first`, then writes the lines to the file. A file from an earlier set-up is saved under a
/// name that network managers do not read, and the undo restores it.
Commands with_file(const std::string& file, const std::vector<std::string>& lines,
                   const std::string& first) {
  return {fmt::format(
              R"({1}; {{ [ ! -e {0} ] || cp -p {0} {0}.before; }} && printf "%s\n" "{2}" > {0})",
              file, first, fmt::join(lines, R"(" ")")),
          fmt::format("rm -f {0}; [ ! -e {0}.before ] || mv {0}.before {0}", file)};
}

Commands with_netplan(const Kept& kept) {
  const std::string& name = kept.interface.name;
  // netplan warns about files that other users than root may read.
  const Commands file = with_file(
      fmt::format("/etc/netplan/90-mccl-{}.yaml", name),
      {"network:", "  version: 2", "  ethernets:", fmt::format("    {}:", name),
       "      optional: true", fmt::format("      addresses: [{}]", text_of(kept.address))},
      "umask 077");
  return {fmt::format("{} && netplan generate || {{ {}; exit 1; }}", file.command, file.undo),
          file.undo + "; netplan generate"};
}

/// Makes a lasting NetworkManager profile. The profile may already exist: in memory since the
/// set-up, or from an earlier run. Its autoconnect value is then saved for the undo.
Commands with_network_manager(const Kept& kept) {
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

Commands with_networkd(const Kept& kept) {
  const std::string& name = kept.interface.name;
  // systemd-networkd uses the first matching file, and "05" sorts before the usual names.
  return with_file(fmt::format("/etc/systemd/network/05-mccl-{}.network", name),
                   {"[Match]", "Name=" + name, "", "[Link]", "RequiredForOnline=no", "",
                    "[Network]", "LinkLocalAddressing=ipv6", "Address=" + text_of(kept.address)},
                   "mkdir -p /etc/systemd/network");
}

Commands with_networksetup(const Kept& kept) {
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
Commands commands_of(const Kept& kept) {
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

/// Throws Error if any address cannot be kept. The message lists all reasons.
void refuse_what_cannot_be_kept(std::span<const Kept> all) {
  std::set<std::string> faults;
  for (const Kept& kept : all) {
    if (kept.host.network_manager.empty())
      faults.insert(fmt::format("{} has none of netplan, NetworkManager and systemd-networkd",
                                kept.host.host));
    // netplan merges the addresses of all its files; the other managers replace them.
    for (const Network& other : kept.interface.addresses)
      if (other != kept.address && kept.host.network_manager != "netplan")
        faults.insert(fmt::format("{} of {} has the address {} as well", kept.interface.name,
                                  kept.host.host, text_of(other)));
  }
  if (faults.empty()) return;
  std::string text;
  for (const std::string& fault : faults) text += (text.empty() ? "" : "; ") + fault;
  throw Error(fmt::format(
      "--persist cannot keep the addresses: {}; nothing was changed. Leave --persist out, and make "
      "them permanent by hand",
      text));
}

}  // namespace

Commands network_manager_commands(const std::string& interface, const Network& address) {
  const std::string own = text_of(address);
  // State 10 is "unmanaged": NetworkManager then removes no addresses, so `ip` suffices.
  return {shell(fmt::format("if nmcli -g GENERAL.STATE device show {0} | grep -q \"^10 \"; "
                            "then ip addr add {1} dev {0}; "
                            "else {2} && nmcli connection up mccl-{0}; fi",
                            interface, own, profile(interface, address, false))),
          // NetworkManager removes the address with a delay, or not at all, so it is deleted here.
          shell(fmt::format("nmcli connection delete mccl-{0}; ip addr del {1} dev {0}; "
                            "! ip addr show dev {0} | grep -q \" {1} \"",
                            interface, own))};
}

std::vector<SetupStep> persist_steps(std::span<const HostFacts> hosts,
                                     std::span<const Addressed> links) {
  std::vector<Kept> all;
  std::vector<int> host_of;
  for (const Addressed& each : links) {
    if (each.keeps && each.a.prefix_bits != kOwnBits) continue;
    for (const End* end : {&each.link.a, &each.link.b}) {
      const HostFacts& host = hosts[static_cast<std::size_t>(end->host)];
      const Interface* interface = host.interface(end->interface);
      if (interface == nullptr) continue;  // setup_steps() has thrown in this case.
      all.push_back({host, *interface, end == &each.link.a ? each.a : each.b});
      host_of.push_back(end->host);
    }
  }
  refuse_what_cannot_be_kept(all);
  std::vector<SetupStep> steps;
  std::set<int> bridged;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const HostFacts& host = all[i].host;
    const std::string sudo = host.is_root ? "" : "sudo ";
    const auto add = [&](const Commands& commands) {
      steps.push_back({host_of[i], sudo + commands.command, sudo + commands.undo});
    };
    const bool bridge = host.system == System::macos && !all[i].interface.bridge.empty();
    if (bridge && bridged.insert(host_of[i]).second)
      add({"networksetup -setnetworkserviceenabled \"Thunderbolt Bridge\" off",
           "networksetup -setnetworkserviceenabled \"Thunderbolt Bridge\" on"});
    add(commands_of(all[i]));
  }
  return steps;
}

}  // namespace mccl::cluster
