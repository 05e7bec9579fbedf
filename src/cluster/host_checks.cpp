#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/settings.h"
#include "base/value_text.h"
#include "cluster/checks.h"
#include "cluster/setup.h"
#include "cluster/text.h"
#include "mccl/error.h"

namespace mccl::cluster {
namespace {

constexpr long kFewFiles = 1024;
/// Free space in /dev/shm, in KiB, below which a warning is added. 64 MiB is the size of /dev/shm
/// in a container of Docker, if no other size is set.
constexpr long kLittleShared = 64L << 10;
/// Limit of locked memory, in KiB, below which a problem is reported.
constexpr long kLittleLocked = 64L << 10;
/// MTU, in bytes, below which a warning is added: the minimum that IPv6 requires. Cloud networks
/// use about 1400.
constexpr int kLeastMtu = 1280;
constexpr int kThunderbolt5 = 80'000;  ///< Rate of a Thunderbolt 5 port, in Mbit/s.

/// Returns a warning whose cure is the command `fix`; `undo` reverses `fix`. On Linux,
/// `mccl doctor --fix` may run `fix`.
Finding fixed_by(const HostFacts& facts, const char* id, std::string what, std::string why,
                 const std::string& fix, const std::string& undo) {
  const bool may_run = facts.system == System::gnu_linux;
  return {id,
          Severity::warning,
          std::move(what),
          facts.host,
          std::move(why),
          "sudo " + fix,
          may_run ? fix : "",
          may_run ? undo : ""};
}

void check_memory(const HostFacts& facts, Findings& findings) {
  if (facts.system != System::gnu_linux) return;
  const char* why =
      "ranks of one host pass their job key through shared memory, and torch's DataLoader and NCCL "
      "keep shared data in it";
  if (!facts.shared_kib || !facts.shared_writable) {
    findings.push_back(
        {"shared-memory-missing", Severity::problem,
         facts.shared_kib ? "/dev/shm cannot be written: there is no shared memory"
                          : "/dev/shm does not exist: there is no shared memory",
         facts.host, why,
         "sudo mount -t tmpfs -o mode=1777 tmpfs /dev/shm; for a container: --ipc=host, or "
         "--shm-size=1g"});
  } else if (*facts.shared_kib < kLittleShared) {
    findings.push_back(
        {"shared-memory-small", Severity::warning,
         fmt::format("/dev/shm has {} MiB left", *facts.shared_kib / 1024), facts.host, why,
         "remove unused files in /dev/shm, or run sudo mount -o remount,size=1g /dev/shm; for a "
         "container: --shm-size=1g"});
  }
}

void check_limits(const HostFacts& facts, Findings& findings) {
  if (facts.most_open_files && *facts.most_open_files != kNoLimit &&
      *facts.most_open_files < kFewFiles) {
    findings.push_back(
        {"open-files-few", Severity::problem,
         fmt::format("a process may open {} files at most", *facts.most_open_files), facts.host,
         "every peer needs several open files, and a job of about ten ranks exceeds the limit",
         facts.system == System::macos
             ? "sudo launchctl limit maxfiles 65536 524288; then log in again"
             : "raise the limit: add the line \"* hard nofile 65536\" to "
               "/etc/security/limits.conf, "
               "or set LimitNOFILE=65536 for the service; then log in again"});
  }
  if (facts.rdma.empty() || !facts.locked_kib || *facts.locked_kib == kNoLimit) return;
  if (*facts.locked_kib < kLittleLocked) {
    findings.push_back(
        {"locked-memory-small", Severity::problem,
         fmt::format("a process may lock {} KiB of memory", *facts.locked_kib), facts.host,
         "RDMA devices transfer data only from and to locked memory, so a job cannot register "
         "buffers above this limit",
         facts.system == System::macos
             ? "macOS sets no such limit by default: search the shell's start-up files for ulimit "
               "-l"
             : "add the line \"* - memlock unlimited\" to /etc/security/limits.conf, or set "
               "LimitMEMLOCK=infinity for the service; then log in again"});
  }
}

void check_cores(const HostFacts& facts, Findings& findings) {
  if (facts.governor == "powersave" && facts.mhz > 0 && facts.most_mhz > 2 * facts.mhz) {
    findings.push_back({"cores-asleep", Severity::note,
                        fmt::format("cores run at {} of {} MHz, and the governor is powersave",
                                    facts.mhz, facts.most_mhz),
                        facts.host, "small calls wait for cores to wake up",
                        "sudo cpupower frequency-set -g performance"});
  }
  if (facts.cores > 0 && facts.load > 1.5 * facts.cores) {
    findings.push_back({"load-high", Severity::note,
                        fmt::format("the load is {:.1f} on {} cores", facts.load, facts.cores),
                        facts.host,
                        "measurements taken now are slower than what the machine can do",
                        "see which processes run: top"});
  }
}

void check_cables(const HostFacts& facts, Findings& findings) {
  for (const Interface& interface : facts.interfaces) {
    if (interface.joins || !interface.has_ipv4()) continue;
    const std::string& name = interface.name;
    const std::string address = text_of(interface.ipv4().front());
    if (interface.up && interface.carrier == false) {
      findings.push_back(
          {"cable-cut", Severity::problem,
           fmt::format("{} has the address {} and no carrier", name, address), facts.host,
           "the cable of this interface is cut or unplugged, or the other end is off: no "
           "packets pass",
           fmt::format("check that both ends are plugged in and up: {} {}",
                       facts.system == System::macos ? "ifconfig" : "ip link show", name)});
    }
    if (!interface.up) {
      findings.push_back(fixed_by(
          facts, "interface-down", fmt::format("{} has the address {} and is down", name, address),
          "no packets pass through this interface", command_to_set(facts.system, name, "up"),
          command_to_set(facts.system, name, "down")));
    }
    if (interface.may_join_hosts() && interface.mtu > 0 && interface.mtu < kLeastMtu) {
      findings.push_back(fixed_by(
          facts, "mtu-small", fmt::format("the MTU of {} is {}", name, interface.mtu),
          fmt::format(
              "packets of less than {} bytes reduce throughput, and IPv6 does not work at all",
              kLeastMtu),
          command_to_set(facts.system, name, "mtu 1500"),
          command_to_set(facts.system, name, fmt::format("mtu {}", interface.mtu))));
    }
  }
}

void check_bridge(const HostFacts& facts, Findings& findings) {
  for (const ThunderboltPort& port : facts.ports) {
    const Interface* interface = facts.interface(port.interface);
    if (port.peer_id.empty() || interface == nullptr || interface->bridge.empty()) continue;
    findings.push_back(
        {"thunderbolt-bridge", Severity::warning,
         fmt::format("{} (Thunderbolt port {}) is a member of {}", interface->name, port.receptacle,
                     interface->bridge),
         facts.host,
         "the Thunderbolt Bridge hides which cable leads where, and RDMA through it fails "
         "with errno 22",
         fmt::format("sudo ifconfig {} down; to make this permanent: networksetup "
                     "-setnetworkserviceenabled \"Thunderbolt Bridge\" off",
                     interface->bridge)});
  }
}

void check_mac_rdma(const HostFacts& facts, Findings& findings) {
  const bool enabled = facts.rdma_control.find("enabled") != std::string::npos;
  const bool any5 = std::ranges::any_of(
      facts.ports, [](const ThunderboltPort& port) { return port.mbit_per_s >= kThunderbolt5; });
  if (facts.ports.empty() || !facts.rdma.empty()) return;
  if (!any5) {
    findings.push_back(
        {"thunderbolt-no-rdma", Severity::note, "the host's Thunderbolt is version 4 or older",
         facts.host, "these versions have no RDMA, whatever rdma_ctl reports; the cables carry TCP",
         ""});
  } else if (!enabled && !facts.rdma_control.empty()) {
    findings.push_back({"rdma-not-enabled", Severity::warning,
                        "RDMA over Thunderbolt 5 is not enabled", facts.host,
                        "TCP is used, with ten times the latency",
                        "start macOS Recovery, open Terminal, and run: rdma_ctl enable"});
  }
}

void check_rdma(const HostFacts& facts, Findings& findings) {
  if (facts.system == System::macos) check_mac_rdma(facts, findings);
  for (const RdmaDevice& device : facts.rdma) {
    const Interface* interface = facts.interface(device.interface);
    if (interface == nullptr || !interface->usable()) continue;
    if (!device.state.empty() && device.state != "ACTIVE") {
      findings.push_back(
          {"rdma-port-inactive", Severity::warning,
           fmt::format("the port of {} is {} although {} is up", device.name, device.state,
                       interface->name),
           facts.host, "an RDMA port that is not ACTIVE carries no data",
           fmt::format("see the messages of the driver: dmesg | grep -i {}", device.name)});
    }
    if (!interface->has_ipv4()) {
      findings.push_back(
          {"rdma-no-address", Severity::warning,
           fmt::format("the interface {} of the RDMA device {} has no IPv4 address",
                       interface->name, device.name),
           facts.host,
           "without an IPv4 address, the device has no IPv4 GID, and connections fail with errno "
           "22 "
           "or "
           "60",
           facts.system == System::macos
               ? fmt::format("mccl config --auto-setup gives the interface an address; by hand: "
                             "sudo ifconfig {} inet ADDRESS netmask 255.255.255.252 alias",
                             interface->name)
               : fmt::format("mccl config --auto-setup gives the interface an address; by hand: "
                             "sudo ip addr add ADDRESS/30 dev {}",
                             interface->name)});
    }
  }
}

constexpr const char* kWhy = "MCCL refuses to start with this setting";

/// Returns the error text with which MCCL refuses the value; empty if the value is valid.
std::string refusal_of(const std::string& name, const std::string& value) {
  if (name == kConfigFileVariable || name == kMlxVariable || value == "(set)") return {};
  try {
    Config config;
    assign(config, find_setting(name), value, name);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return {};
}

using Matrix = std::vector<std::vector<std::string>>;

/// Removes terminal escape sequences, with which nvidia-smi underlines its first line.
std::string without_escapes(std::string_view text) {
  std::string plain;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '\x1b') {
      plain += text[at];
      continue;
    }
    while (at < text.size() && text[at] != 'm' && text[at] != '\n') ++at;
  }
  return plain;
}

/// True for nvidia-smi's words for NVLink, such as "NV18".
bool is_nvlink(const std::string& cell) {
  return cell.starts_with("NV") && cell.size() > 2 &&
         cell.find_first_not_of("0123456789", 2) == cell.npos;
}

/// Explains a word in the output of `nvidia-smi topo -p2p`.
std::string meaning_of(const std::string& word) {
  const std::map<std::string, std::string> known = {
      {"CNS", "the chipset does not support peer access"},
      {"GNS", "the GPUs do not support peer access"},
      {"TNS", "the topology does not support peer access"},
      {"DR", "a registry key disables peer access"},
      {"NS", "peer access is not supported"},
      {"U", "the reason is unknown"}};
  const auto found = known.find(word);
  return found == known.end() ? in_quotes(word) : found->second;
}

/// True if the user can change the cause of the missing peer access. Missing support in the GPUs
/// themselves cannot be changed.
bool can_be_changed(const std::string& word) {
  return word == "CNS" || word == "TNS" || word == "DR";
}

void check_links(const HostFacts& facts, Findings& findings) {
  const Matrix links = gpu_matrix(facts.gpu_links, facts.gpus.size());
  const bool any = std::ranges::any_of(
      links, [](const auto& row) { return std::ranges::any_of(row, is_nvlink); });
  if (links.empty() || any) return;
  findings.push_back({"gpu-no-nvlink", Severity::note,
                      fmt::format("no NVLink joins the {} GPUs of this host", facts.gpus.size()),
                      facts.host, "data between the GPUs goes over PCIe",
                      "see: nvidia-smi topo -m"});
}

void check_peers(const HostFacts& facts, Findings& findings) {
  const Matrix peers = gpu_matrix(facts.gpu_peers, facts.gpus.size());
  // Pairs of GPUs without peer access, keyed by nvidia-smi's word for the reason.
  std::map<std::string, std::vector<std::string>> pairs;
  for (std::size_t a = 0; a < peers.size(); ++a)
    for (std::size_t b = a + 1; b < peers.size(); ++b)
      for (const std::string& word : {peers[a][b], peers[b][a]})
        if (word != "OK") pairs[word].push_back(fmt::format("{} and {}", a, b));
  for (auto& [word, of] : pairs) {
    of.erase(std::unique(of.begin(), of.end()), of.end());
    const std::size_t shown = std::min<std::size_t>(of.size(), 4);
    findings.push_back(
        {"gpu-no-peer-access", can_be_changed(word) ? Severity::warning : Severity::note,
         fmt::format("{} pair{} of GPUs cannot read each other's memory: {}", of.size(),
                     of.size() == 1 ? "" : "s", meaning_of(word)),
         fmt::format("{} (GPUs {}{})", facts.host,
                     fmt::join(of.begin(), of.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                     of.size() > shown ? ", …" : ""),
         "data between these GPUs goes through host memory, at half the rate or less",
         can_be_changed(word)
             ? "turn off IOMMU and ACS in the firmware if nothing needs them; see: nvidia-smi "
               "topo -p2p r"
             : ""});
  }
}

}  // namespace

Findings check_machine(const HostFacts& facts) {
  Findings findings = facts.odd;
  check_memory(facts, findings);
  check_limits(facts, findings);
  check_cores(facts, findings);
  check_cables(facts, findings);
  check_bridge(facts, findings);
  check_rdma(facts, findings);
  append(findings, check_gpus(facts));
  return findings;
}

Findings check_settings(const HostFacts& facts) {
  Findings findings;
  const auto add = [&](Severity severity, const std::string& name, std::string what,
                       std::string why) {
    findings.push_back({"setting-refused", severity, std::move(what), facts.host, std::move(why),
                        fmt::format("unset or correct {} in the shell's start-up files", name)});
  };
  for (const auto& [name, value] : facts.settings) {
    const std::string refusal = refusal_of(name, value);
    if (!refusal.empty()) add(Severity::problem, name, refusal, kWhy);
  }
  for (const std::string& address : facts.items_of("MCCL_LISTEN_ADDR")) {
    const auto parsed = parse_address(address);
    if (parsed && !parsed->is_ipv6 && facts.interface_with(address) == nullptr)
      add(Severity::problem, "MCCL_LISTEN_ADDR",
          fmt::format("MCCL_LISTEN_ADDR is {}, and no interface has that address", address), kWhy);
  }
  for (const std::string& name : facts.items_of("MCCL_IFNAME")) {
    if (facts.interface(name) == nullptr)
      add(Severity::problem, "MCCL_IFNAME",
          fmt::format("MCCL_IFNAME is {}, and there is no such interface", in_quotes(name)), kWhy);
  }
  return findings;
}

Matrix gpu_matrix(std::string_view text, std::size_t count) {
  const std::string plain = without_escapes(text);
  Matrix matrix(count);
  for (const std::string_view line : lines_of(plain)) {
    const auto words = words_of(line);
    if (words.size() < count + 1 || !words[0].starts_with("GPU")) continue;
    const auto number = parse_integer(words[0].substr(3));
    if (!number || *number < 0 || static_cast<std::size_t>(*number) >= count) continue;
    const auto row = static_cast<std::size_t>(*number);
    // Skip the heading, whose first word is "GPU0", too, but which has no "X" on the diagonal.
    if (words[row + 1] != "X") continue;
    matrix[row].assign(words.begin() + 1, words.begin() + 1 + static_cast<std::ptrdiff_t>(count));
  }
  if (std::ranges::any_of(matrix, [](const auto& row) { return row.empty(); })) return {};
  return matrix;
}

Findings check_gpus(const HostFacts& facts) {
  Findings findings;
  if (facts.gpus.size() < 2) return findings;
  check_links(facts, findings);
  check_peers(facts, findings);
  return findings;
}

}  // namespace mccl::cluster
