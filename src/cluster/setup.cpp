#include "cluster/setup.h"

#include <fmt/format.h>

#include <set>

#include "base/value_text.h"
#include "cluster/commands.h"
#include "cluster/persist.h"
#include "mccl/error.h"

namespace mccl::cluster {
namespace {

class Steps {
 public:
  explicit Steps(std::span<const HostFacts> hosts) : hosts_(hosts) {}

  void add(int host, const std::string& command, const std::string& undo) {
    const std::string sudo = facts(host).is_root ? "" : "sudo ";
    steps_.push_back({host, sudo + command, sudo + undo});
  }

  /// Takes the interface out of its bridge and brings it up. On macOS, brings the bridge down
  /// instead, once per bridge.
  void prepare(const End& end) {
    const Interface* interface = facts(end.host).interface(end.interface);
    if (interface == nullptr) return;
    const bool mac = facts(end.host).system == System::macos;
    if (!interface->bridge.empty() && bridges_.insert({end.host, interface->bridge}).second && mac)
      add(end.host, command_to_set(System::macos, interface->bridge, false),
          command_to_set(System::macos, interface->bridge, true));
    if (!interface->bridge.empty() && !mac)
      add(end.host, fmt::format("ip link set {} nomaster", end.interface),
          fmt::format("ip link set {} master {}", end.interface, interface->bridge));
    if (interface->up) return;
    const System system = facts(end.host).system;
    add(end.host, command_to_set(system, end.interface, true),
        command_to_set(system, end.interface, false));
  }

  /// Adds an address to the interface, which keeps its present addresses.
  void give(const End& end, const Network& own, const Network& peer) {
    // Use a profile only if the interface has no addresses, because it would replace them.
    if (facts(end.host).network_manager == "NetworkManager" &&
        facts(end.host).interface(end.interface)->addresses.empty()) {
      const Commands commands = network_manager_commands(end.interface, own);
      add(end.host, commands.command, commands.undo);
      return;
    }
    if (facts(end.host).system != System::macos) {
      add(end.host, fmt::format("ip addr add {} dev {}", text_of(own), end.interface),
          fmt::format("ip addr del {} dev {}", text_of(own), end.interface));
      return;
    }
    const std::string address = text_of(own.address);
    add(end.host,
        fmt::format("ifconfig {} inet {} netmask {} alias", end.interface, address,
                    text_of(mask_of(own.prefix_bits))),
        fmt::format("ifconfig {} inet {} -alias", end.interface, address));
    // Without a host route, macOS sends through the first of several interfaces.
    const std::string other = text_of(peer.address);
    add(end.host, fmt::format("route -n add -host {} -interface {}", other, end.interface),
        fmt::format("route -n delete -host {}", other));
  }

  std::vector<SetupStep> take() { return std::move(steps_); }

 private:
  const HostFacts& facts(int host) const { return hosts_[static_cast<std::size_t>(host)]; }

  std::span<const HostFacts> hosts_;
  std::vector<SetupStep> steps_;
  std::set<std::pair<int, std::string>> bridges_;
};

}  // namespace

std::vector<SetupStep> setup_steps(std::span<const HostFacts> hosts,
                                   std::span<const Addressed> links) {
  Steps steps(hosts);
  for (const Addressed& each : links) {
    if (each.keeps) continue;
    for (const End* end : {&each.link.a, &each.link.b}) {
      // Reject an unknown interface name, because root runs a command that contains it.
      if (hosts[static_cast<std::size_t>(end->host)].interface(end->interface) == nullptr)
        throw Error(fmt::format("{} has no interface {}",
                                hosts[static_cast<std::size_t>(end->host)].host,
                                in_quotes(end->interface)));
      steps.prepare(*end);
      const bool first = end == &each.link.a;
      steps.give(*end, first ? each.a : each.b, first ? each.b : each.a);
    }
  }
  return steps.take();
}

}  // namespace mccl::cluster
