#include "cli/probe/gather.h"
#include "cluster/read_facts.h"

namespace mccl::cli::probe {

void gather_macos(cluster::HostFacts& facts, const Programs& programs) {
  const auto said = [&](std::vector<std::string> argv) {
    return programs.output_of(facts, std::move(argv));
  };
  const auto number = [&](const char* name) {
    return cluster::count_of(cluster::trimmed(said({"sysctl", "-n", name})));
  };
  facts.system = cluster::System::macos;
  facts.os = "macOS " + std::string(cluster::trimmed(said({"sw_vers", "-productVersion"})));
  facts.boot = cluster::trimmed(said({"sysctl", "-n", "kern.bootsessionuuid"}));
  facts.cores = static_cast<int>(number("hw.ncpu"));
  facts.memory_gib = static_cast<double>(number("hw.memsize")) / (1 << 30);
  gather_macos_networks(facts, programs);
}

void gather_macos_networks(cluster::HostFacts& facts, const Programs& programs) {
  const auto said = [&](std::vector<std::string> argv) {
    return programs.output_of(facts, std::move(argv));
  };
  cluster::read_mac_network(
      facts, {{"ifconfig", said({"ifconfig", "-a"})},
              {"netstat", said({"netstat", "-rn", "-f", "inet"})},
              {"system_profiler", said({"system_profiler", "SPThunderboltDataType", "-json"})},
              {"networksetup", said({"networksetup", "-listallhardwareports"})},
              {"ibv_devices", said({"ibv_devices"})},
              {"rdma_ctl", said({"rdma_ctl", "status"})}});
  cluster::note_in_use(facts, said({"netstat", "-rn", "-f", "inet"}), "a gateway");
  cluster::note_in_use(facts, said({"arp", "-an"}), "a neighbour");
  cluster::note_in_use(facts, said({"scutil", "--dns"}), "a DNS server");
  cluster::note_in_use(facts, said({"netstat", "-n", "-f", "inet", "-p", "tcp"}), "a TCP peer");
  facts.network_manager = "networksetup";
}

}  // namespace mccl::cli::probe
