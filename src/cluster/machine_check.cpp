#include "cluster/machine_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "cluster/commands.h"
#include "cluster/gpu_check.h"

namespace mccl::cluster {
namespace {

constexpr long kFewFiles = 1024;
/// Minimum free space in /dev/shm, in KiB; Docker's default size.
constexpr long kLittleShared = 64L << 10;
constexpr long kLittleLocked = 64L << 10;  ///< Minimum limit of locked memory, in KiB.
/// Minimum MTU, in bytes, as required by IPv6. Cloud networks use about 1400.
constexpr int kLeastMtu = 1280;
constexpr int kThunderbolt5 = 80'000;  ///< Rate of a Thunderbolt 5 port, in Mbit/s.

/// Collects the findings about one host.
class Findings {
 public:
  explicit Findings(const HostFacts& facts) : facts_(facts), all_(facts.odd) {}

  /// Adds a warning that the command `fix` cures and `undo` reverses. On Linux,
  /// `mccl doctor --fix` may run them.
  void add_fixed_by(const char* id, std::string what, std::string why, const std::string& fix,
                    const std::string& undo) {
    add(id, Severity::warning, std::move(what), std::move(why), "sudo " + fix);
    if (facts_.system != System::gnu_linux) return;
    all_.back().fix = fix;
    all_.back().undo = undo;
  }
  void add(const char* id, Severity severity, std::string what, std::string why, std::string cure) {
    all_.push_back({id, severity, std::move(what), facts_.host, std::move(why), std::move(cure)});
  }
  std::vector<Finding> take() { return std::move(all_); }

 private:
  const HostFacts& facts_;
  std::vector<Finding> all_;
};

void check_memory(const HostFacts& facts, Findings& findings) {
  if (facts.system != System::gnu_linux) return;
  const char* why =
      "ranks of one host pass their job key through shared memory, and torch's DataLoader and NCCL "
      "keep shared data there";
  if (!facts.shared_kib || !facts.shared_writable) {
    findings.add("shared-memory-missing", Severity::problem,
                 facts.shared_kib ? "/dev/shm cannot be written: there is no shared memory"
                                  : "/dev/shm does not exist: there is no shared memory",
                 why,
                 "sudo mount -t tmpfs -o mode=1777 tmpfs /dev/shm; for a container: --ipc=host, or "
                 "--shm-size=1g");
  } else if (*facts.shared_kib < kLittleShared) {
    findings.add("shared-memory-small", Severity::warning,
                 fmt::format("/dev/shm has {} MiB left", *facts.shared_kib / 1024), why,
                 "remove unused files there, or run sudo mount -o remount,size=1g /dev/shm; for a "
                 "container: --shm-size=1g");
  }
}

void check_limits(const HostFacts& facts, Findings& findings) {
  if (facts.most_open_files && *facts.most_open_files != kNoLimit &&
      *facts.most_open_files < kFewFiles) {
    findings.add(
        "open-files-few", Severity::problem,
        fmt::format("a process may open {} files at most", *facts.most_open_files),
        "every peer needs several open files, and a job of about ten ranks exceeds the limit",
        facts.system == System::macos
            ? "sudo launchctl limit maxfiles 65536 524288; then log in again"
            : "raise the limit: add the line \"* hard nofile 65536\" to /etc/security/limits.conf, "
              "or set LimitNOFILE=65536 for the service; then log in again");
  }
  if (facts.rdma.empty() || !facts.locked_kib || *facts.locked_kib == kNoLimit) return;
  if (*facts.locked_kib < kLittleLocked) {
    findings.add(
        "locked-memory-small", Severity::problem,
        fmt::format("a process may lock {} KiB of memory", *facts.locked_kib),
        "RDMA devices transfer data from and to locked memory only, so buffers of a job are "
        "refused",
        facts.system == System::macos
            ? "macOS sets no such limit by default: search the shell's start-up files for ulimit -l"
            : "add the line \"* - memlock unlimited\" to /etc/security/limits.conf, or set "
              "LimitMEMLOCK=infinity for the service; then log in again");
  }
}

void check_cores(const HostFacts& facts, Findings& findings) {
  if (facts.governor == "powersave" && facts.mhz > 0 && facts.most_mhz > 2 * facts.mhz) {
    findings.add("cores-asleep", Severity::note,
                 fmt::format("cores run at {} of {} MHz, and the governor is powersave", facts.mhz,
                             facts.most_mhz),
                 "small calls wait for cores to wake up",
                 "sudo cpupower frequency-set -g performance");
  }
  if (facts.cores > 0 && facts.load > 1.5 * facts.cores) {
    findings.add("load-high", Severity::note,
                 fmt::format("the load is {:.1f} on {} cores", facts.load, facts.cores),
                 "measurements taken now are slower than what the machine can do",
                 "see which processes run: top");
  }
}

void check_cables(const HostFacts& facts, Findings& findings) {
  for (const Interface& interface : facts.interfaces) {
    const bool cut = interface.up && interface.carrier == false && !interface.joins;
    if (cut && !interface.addresses.empty()) {
      findings.add("cable-cut", Severity::problem,
                   fmt::format("{} has the address {} and no carrier", interface.name,
                               text_of(interface.addresses.front())),
                   "its cable is cut or unplugged, or the other end is off: no packets pass",
                   "check that both ends are plugged in and up: " +
                       command_to_show(facts.system, interface.name));
    }
    if (!interface.up && !interface.joins && !interface.addresses.empty()) {
      findings.add_fixed_by("interface-down",
                            fmt::format("{} has the address {} and is down", interface.name,
                                        text_of(interface.addresses.front())),
                            "no packets pass through it",
                            command_to_set(facts.system, interface.name, true),
                            command_to_set(facts.system, interface.name, false));
    }
    if (interface.usable() && !interface.joins && interface.medium != Medium::loopback &&
        !interface.addresses.empty() && interface.mtu > 0 && interface.mtu < kLeastMtu) {
      findings.add_fixed_by(
          "mtu-small", fmt::format("the MTU of {} is {}", interface.name, interface.mtu),
          fmt::format(
              "packets of less than {} bytes reduce throughput, and IPv6 does not work at all",
              kLeastMtu),
          command_to_set_mtu(facts.system, interface.name, 1500),
          command_to_set_mtu(facts.system, interface.name, interface.mtu));
    }
  }
}

void check_bridge(const HostFacts& facts, Findings& findings) {
  for (const Port& port : facts.ports) {
    const Interface* interface = facts.interface(port.interface);
    if (port.peer.empty() || interface == nullptr || interface->bridge.empty()) continue;
    findings.add("thunderbolt-bridge", Severity::warning,
                 fmt::format("{} (Thunderbolt port {}) is a member of {}", interface->name,
                             port.receptacle, interface->bridge),
                 "the Thunderbolt Bridge hides which cable leads where, and RDMA through it fails "
                 "with errno 22",
                 fmt::format("sudo ifconfig {} down; to make this permanent: networksetup "
                             "-setnetworkserviceenabled \"Thunderbolt Bridge\" off",
                             interface->bridge));
  }
}

void check_mac_rdma(const HostFacts& facts, Findings& findings) {
  const bool enabled = facts.rdma_control.find("enabled") != std::string::npos;
  const bool any5 = std::ranges::any_of(
      facts.ports, [](const Port& port) { return port.mbit_per_s >= kThunderbolt5; });
  if (facts.ports.empty() || !facts.rdma.empty()) return;
  if (!any5) {
    findings.add("thunderbolt-no-rdma", Severity::note, "its Thunderbolt is version 4 or older",
                 "these versions have no RDMA, whatever rdma_ctl reports; the cables carry TCP",
                 "");
  } else if (!enabled && !facts.rdma_control.empty()) {
    findings.add("rdma-not-enabled", Severity::warning, "RDMA over Thunderbolt 5 is not enabled",
                 "TCP is used, with ten times the latency",
                 "start macOS Recovery, open Terminal, and run: rdma_ctl enable");
  }
}

void check_rdma(const HostFacts& facts, Findings& findings) {
  if (facts.system == System::macos) check_mac_rdma(facts, findings);
  for (const RdmaDevice& device : facts.rdma) {
    const Interface* interface = facts.interface(device.interface);
    if (interface == nullptr || !interface->usable()) continue;
    if (!device.state.empty() && device.state != "ACTIVE") {
      findings.add("rdma-port-inactive", Severity::warning,
                   fmt::format("the port of {} is {} although {} is up", device.name, device.state,
                               interface->name),
                   "an RDMA port that is not ACTIVE carries no data",
                   fmt::format("see the messages of the driver: dmesg | grep -i {}", device.name));
    }
    if (interface->addresses.empty()) {
      findings.add(
          "rdma-no-address", Severity::warning,
          fmt::format("{} of the RDMA device {} has no IPv4 address", interface->name, device.name),
          "without one, the device has no IPv4 GID, and connections fail with errno 22 or 60",
          facts.system == System::macos
              ? fmt::format("mccl config --auto-setup gives it one; by hand: sudo ifconfig {} inet "
                            "ADDRESS netmask 255.255.255.252 alias",
                            interface->name)
              : fmt::format("mccl config --auto-setup gives it one; by hand: sudo ip addr add "
                            "ADDRESS/30 dev {}",
                            interface->name));
    }
  }
}

}  // namespace

std::vector<Finding> check_machine(const HostFacts& facts) {
  Findings findings(facts);
  check_memory(facts, findings);
  check_limits(facts, findings);
  check_cores(facts, findings);
  check_cables(facts, findings);
  check_bridge(facts, findings);
  check_rdma(facts, findings);
  std::vector<Finding> all = findings.take();
  for (Finding& finding : check_gpus(facts)) all.push_back(std::move(finding));
  return all;
}

}  // namespace mccl::cluster
