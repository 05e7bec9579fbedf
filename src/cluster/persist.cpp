#include "cluster/persist.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "mccl/error.h"

namespace mccl::cluster {
namespace {

constexpr int kOwnBits = 30;  ///< Of the networks that give_addresses() makes.

/// What one interface is to have after a restart.
struct Kept {
  const HostFacts& host;
  const Interface& interface;
  Network address;
};

/// A command that needs a shell; `script` has no single quotes.
std::string shell(const std::string& script) { return fmt::format("sh -c '{}'", script); }

/// Makes a profile of NetworkManager that gives the interface its address.
std::string profile(const std::string& interface, const Network& address, bool lasting) {
  return fmt::format(
      "nmcli connection add save {0} type ethernet con-name mccl-{1} ifname {1} "
      "connection.autoconnect-priority 100 ipv4.method manual ipv4.addresses {2} "
      "ipv6.method link-local",
      lasting ? "yes" : "no", interface, text_of(address));
}

Commands with_netplan(const Kept& kept) {
  const std::string file = fmt::format("/etc/netplan/90-mccl-{}.yaml", kept.interface.name);
  // netplan warns of files that others than root may read.
  const std::string write =
      fmt::format(R"(umask 077; printf "%s\n" "network:" "  version: 2" "  ethernets:" "    {}:" )"
                  R"("      optional: true" "      addresses: [{}]" > {})",
                  kept.interface.name, text_of(kept.address), file);
  return {shell(fmt::format("{} && netplan generate || {{ rm -f {}; exit 1; }}", write, file)),
          shell(fmt::format("rm -f {} && netplan generate", file))};
}

/// The profile may be there already: in memory since the set-up, or from an earlier run.
Commands with_network_manager(const Kept& kept) {
  const std::string& name = kept.interface.name;
  return {shell(fmt::format("nmcli connection modify mccl-{} connection.autoconnect yes 2> "
                            "/dev/null || {}",
                            name, profile(name, kept.address, true))),
          // The set-up that gave the address takes the profile away.
          fmt::format("nmcli connection modify mccl-{} connection.autoconnect no", name)};
}

Commands with_networkd(const Kept& kept) {
  // The first file that fits an interface is taken: 05 comes before those that others write.
  const std::string file =
      fmt::format("/etc/systemd/network/05-mccl-{}.network", kept.interface.name);
  return {
      shell(fmt::format(
          R"(mkdir -p /etc/systemd/network && printf "%s\n" "[Match]" "Name={}" "" "[Link]" )"
          R"("RequiredForOnline=no" "" "[Network]" "LinkLocalAddressing=ipv6" "Address={}" > {})",
          kept.interface.name, text_of(kept.address), file)),
      "rm -f " + file};
}

Commands with_networksetup(const Kept& kept) {
  const std::string service = "mccl " + kept.interface.name;
  // Services are made of ports, whose names the list shows before those of their interfaces.
  const std::string port = fmt::format(
      R"(p=$(networksetup -listallhardwareports | sed -n "/^Hardware Port: /{{s///;h;}}; /^Device: {}$/{{g;p;}}"))",
      kept.interface.name);
  return {shell(fmt::format(R"({0}; networksetup -removenetworkservice "{1}" > /dev/null 2>&1; )"
                            R"(networksetup -createnetworkservice "{1}" "$p" && )"
                            R"(networksetup -setmanual "{1}" {2} {3})",
                            port, service, text_of(kept.address.address),
                            text_of(mask_of(kept.address.prefix_bits)))),
          fmt::format("networksetup -removenetworkservice \"{}\"", service)};
}

Commands commands_of(const Kept& kept) {
  const std::string& manager = kept.host.network_manager;
  if (manager == "netplan") return with_netplan(kept);
  if (manager == "NetworkManager") return with_network_manager(kept);
  if (manager == "systemd-networkd") return with_networkd(kept);
  return with_networksetup(kept);
}

/// Throws Error where any end cannot be kept.
void refuse_what_cannot_be_kept(std::span<const Kept> all) {
  std::set<std::string> faults;
  for (const Kept& kept : all) {
    if (kept.host.network_manager.empty())
      faults.insert(fmt::format("{} has none of netplan, NetworkManager and systemd-networkd",
                                kept.host.host));
    // netplan adds to the addresses that its other files name; the others replace them.
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
  // NetworkManager removes no address from an interface that it does not manage.
  return {shell(fmt::format("if nmcli -g GENERAL.STATE device show {0} | grep -q \"^10 \"; "
                            "then ip addr add {1} dev {0}; "
                            "else {2} && nmcli connection up mccl-{0}; fi",
                            interface, own, profile(interface, address, false))),
          // NetworkManager takes the address away a little later, or not at all.
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
      if (interface == nullptr) continue;  // setup_steps() has thrown.
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
