// Gathers this host's interfaces, addresses and devices on Linux, from files in /sys and /proc.
#include <fmt/format.h>
#include <net/if.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>

#include "base/first_line.h"
#include "base/value_text.h"
#include "cli/probe/gather.h"
#include "cluster/read_facts.h"
#include "transport/tcp/interfaces.h"

namespace mccl::cli::probe {
namespace {

namespace fs = std::filesystem;
using cluster::HostFacts;
using cluster::Interface;
using cluster::InterfaceKind;

constexpr std::size_t kMostInterfaces = 4096;
constexpr std::size_t kMostRoutes = 10'000;
const fs::path kInterfaces = "/sys/class/net";
const fs::path kRdma = "/sys/class/infiniband";

/// Linux's numbers for types of interfaces (ARPHRD_ETHER and ARPHRD_INFINIBAND).
constexpr long kEthernet = 1;
constexpr long kInfiniband = 32;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

std::string target_of(const fs::path& link) {
  std::error_code ignored;
  return fs::read_symlink(link, ignored).filename().string();
}

/// In alphabetical order.
std::vector<fs::path> folders_in(const fs::path& path) {
  std::error_code ignored;
  std::set<fs::path> folders;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, ignored))
    if (entry.is_directory(ignored)) folders.insert(entry.path());
  return {folders.begin(), folders.end()};
}

int small(const std::string& text) {
  return static_cast<int>(std::min<long>(cluster::count_of(text), INT_MAX));
}

unsigned hexadecimal(std::string_view text) {
  return static_cast<unsigned>(std::strtoul(std::string(text).c_str(), nullptr, 16));
}

/// True for tunnels, bridges and dummies, which have no cable of their own. An interface whose type
/// is neither Ethernet nor InfiniBand is a tunnel; an interface of WireGuard is recognised only by
/// its type. An Ethernet interface that does not use ARP is a dummy.
bool joins_only(const fs::path& path, unsigned flags) {
  if (is_there(path / "tun_flags") || is_there(path / "bridge")) return true;
  if (is_there(path / "device") || is_there(path / "bonding")) return false;
  const std::string type = first_line(path / "type");
  const long number = cluster::count_of(type);
  if (!type.empty() && number != kEthernet && number != kInfiniband) return true;
  return (flags & IFF_NOARP) != 0;
}

InterfaceKind medium_of(const std::string& name, transport::tcp::Medium::Kind kind,
                        const std::string& driver) {
  if (name == "lo") return InterfaceKind::loopback;
  if (kind == transport::tcp::Medium::Kind::wireless) return InterfaceKind::wireless;
  if (driver.find("thunderbolt") != driver.npos) return InterfaceKind::thunderbolt;
  // A veth interface counts as a cable, because containers and tests use it as one.
  return kind == transport::tcp::Medium::Kind::cable ? InterfaceKind::cable
                                                     : InterfaceKind::software;
}

int rp_filter_of(const std::string& name) {
  const auto filter = [](const std::string& of) {
    return small(first_line(fmt::format("/proc/sys/net/ipv4/conf/{}/rp_filter", of)));
  };
  return std::max(filter("all"), filter(name));
}

void gather_interfaces(HostFacts& facts) {
  for (const fs::path& path : folders_in(kInterfaces)) {
    Interface interface;
    interface.name = cluster::plain_name(facts, kInterfaces, path.filename().string());
    if (interface.name.empty() || facts.interfaces.size() == kMostInterfaces) continue;
    const transport::tcp::Medium medium = transport::tcp::medium_of(interface.name, kInterfaces);
    const unsigned flags = hexadecimal(first_line(path / "flags"));
    interface.kind = medium_of(interface.name, medium.kind, target_of(path / "device/driver"));
    interface.up = (flags & IFF_UP) != 0;
    if (const std::string carrier = first_line(path / "carrier"); !carrier.empty())
      interface.carrier = carrier == "1";
    interface.mbit_per_s = interface.kind == InterfaceKind::software ? 0 : medium.mbit_per_s;
    interface.mtu = small(first_line(path / "mtu"));
    interface.mac = first_line(path / "address");
    interface.bridge = cluster::plain_name(facts, kInterfaces, target_of(path / "master"));
    interface.joins = joins_only(path, flags);
    interface.rp_filter = rp_filter_of(interface.name);
    facts.interfaces.push_back(std::move(interface));
  }
  if (facts.interfaces.empty()) cluster::note_odd(facts, kInterfaces, "the host's interfaces", "");
}

void gather_addresses(HostFacts& facts) {
  for (const transport::tcp::InterfaceAddress& each : transport::tcp::list_interfaces()) {
    Interface* interface = facts.interface(each.name);
    if (interface == nullptr || each.address.family() != AF_INET) continue;
    const auto network =
        cluster::parse_network(fmt::format("{}/{}", each.address.host(), each.prefix_bits));
    if (network) interface->addresses.push_back(*network);
  }
}

/// Parses lines such as "fe800000000000000000000000000001 02 40 20 80 eth0". They hold the address
/// and, in hexadecimal, the index of the interface, the prefix length, the scope and flags.
void gather_addresses6(HostFacts& facts) {
  constexpr unsigned kGlobal = 0;
  constexpr unsigned kOfLink = 0x20;
  // Flags of addresses that do not last: temporary, failed, deprecated or tentative.
  constexpr unsigned kPassing = 0x01 | 0x08 | 0x20 | 0x40;
  std::ifstream file("/proc/net/if_inet6");
  for (std::string line; std::getline(file, line);) {
    const auto words = cluster::words_of(line);
    if (words.size() != 6 || words[0].size() != 32) continue;
    std::string address(words[0].substr(0, 4));
    for (std::size_t at = 4; at < 32; at += 4) address.append(":").append(words[0].substr(at, 4));
    const auto number = [&](std::size_t word) { return hexadecimal(words[word]); };
    Interface* interface = facts.interface(words[5]);
    const auto network = cluster::parse_network(fmt::format("{}/{}", address, number(2)));
    if (interface == nullptr || !network) continue;
    if (number(3) == kGlobal && (number(4) & kPassing) == 0)
      interface->addresses.push_back(*network);
    if (number(3) == kOfLink) interface->link_local.push_back(text_of(network->address));
  }
}

/// Parses /proc/net/route, whose first line names the columns. Addresses are hexadecimal, in
/// network byte order.
void gather_routes(HostFacts& facts) {
  const auto address = [](std::string_view word) {
    return cluster::IpAddress{ntohl(hexadecimal(word))};
  };
  std::ifstream file("/proc/net/route");
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line) && facts.routes.size() < kMostRoutes) {
    const auto words = cluster::words_of(line);
    if (words.size() < 8) continue;
    const auto bits = cluster::prefix_of_mask(text_of(address(words[7])));
    if (!bits || *bits == 0) continue;
    const std::string_view interface = words[0];
    facts.routes.push_back({{address(words[1]), *bits},
                            cluster::is_plain_name(interface) ? std::string(interface) : ""});
  }
}

/// Adds the addresses of neighbours, name servers, file servers, gateways and TCP peers to
/// `in_use`. Also adds the networks of all routing tables, because /proc/net/route shows only the
/// main table.
void gather_in_use(HostFacts& facts, const Programs& programs) {
  cluster::note_in_use(facts, contents_of("/etc/resolv.conf"), "a DNS server");
  cluster::note_in_use(facts, contents_of("/run/systemd/resolve/resolv.conf"), "a DNS server");
  const std::string mounts = contents_of("/proc/mounts");
  for (const std::string_view mount : cluster::lines_of(mounts))
    if (const std::size_t server = mount.find("addr="); server != mount.npos)
      cluster::note_in_use(facts, mount.substr(server), "a file server");
  cluster::note_in_use(facts, contents_of("/proc/net/arp"), "a neighbour");
  cluster::note_tcp_peers(facts, contents_of("/proc/net/tcp"));
  cluster::note_tcp_peers(facts, contents_of("/proc/net/tcp6"));
  cluster::note_in_use(facts,
                       programs.output_of(facts, {"ip", "-4", "route", "show", "table", "all"}),
                       "in a route");
}

/// See HostFacts::network_manager. NetworkManager comes first, because it removes addresses that it
/// does not know; netplan generates the configuration of systemd-networkd.
std::string network_manager_of(HostFacts& facts, const Programs& programs) {
  const auto says = [&](std::vector<std::string> argv, std::string_view word) {
    return trimmed(programs.output_of(facts, std::move(argv))) == word;
  };
  if (says({"nmcli", "-g", "RUNNING", "general"}, "running")) return "NetworkManager";
  if (!programs.find("netplan").empty() && is_there("/etc/netplan")) return "netplan";
  if (says({"systemctl", "is-active", "systemd-networkd"}, "active")) return "systemd-networkd";
  return {};
}

void gather_rdma(HostFacts& facts) {
  for (const fs::path& path : folders_in(kRdma)) {
    for (const fs::path& port : folders_in(path / "ports")) {
      cluster::RdmaDevice device;
      device.name = cluster::plain_name(facts, kRdma, path.filename().string());
      if (device.name.empty()) continue;
      std::error_code ignored;
      for (const fs::directory_entry& entry :
           fs::directory_iterator(port / "gid_attrs/ndevs", ignored))
        if (device.interface.empty()) device.interface = first_line(entry.path());
      // The files hold text such as "4: ACTIVE" and "100 Gb/sec (4X EDR)".
      const std::string state = first_line(port / "state");
      device.state = trimmed(state.substr(std::min(state.find(':') + 1, state.size())));
      const std::string rate = first_line(port / "rate");
      const double gbit = parse_number(rate.substr(0, rate.find(' '))).value_or(0);
      device.mbit_per_s = static_cast<int>(std::clamp(gbit, 0.0, 1e6) * 1000);
      for (const fs::directory_entry& entry : fs::directory_iterator(port / "gids", ignored)) {
        const std::string gid = first_line(entry.path());
        if (gid.find_first_not_of("0:") != gid.npos) device.gids.push_back(gid);
      }
      if (Interface* interface = facts.interface(device.interface)) interface->rdma = device.name;
      facts.rdma.push_back(std::move(device));
    }
  }
}

/// In sysfs, three folders are nested. From the outermost in, they describe this host's Thunderbolt
/// controller, the computer at the other end of the cable, and the network interface.
void gather_thunderbolt(HostFacts& facts) {
  for (const Interface& interface : facts.interfaces) {
    if (interface.kind != InterfaceKind::thunderbolt) continue;
    std::error_code failure;
    const fs::path device = fs::canonical(kInterfaces / interface.name / "device", failure);
    if (failure) continue;
    const fs::path there = device.parent_path();
    cluster::ThunderboltPort port;
    port.receptacle = interface.name;
    port.interface = interface.name;
    port.own = cluster::lower_case(first_line(there.parent_path() / "unique_id"));
    port.peer_id = cluster::lower_case(first_line(there / "unique_id"));
    port.peer = first_line(there / "device_name");
    port.mbit_per_s = interface.mbit_per_s;
    facts.ports.push_back(std::move(port));
  }
}

/// True if the process is a rank in the network namespace `network`. Every rank has a thread named
/// "mccl progress".
bool is_rank(const fs::path& process, const fs::path& network) {
  std::error_code ignored;
  if (fs::read_symlink(process / "ns/net", ignored) != network) return false;
  for (const fs::directory_entry& thread : fs::directory_iterator(process / "task", ignored))
    if (first_line(thread.path() / "comm") == "mccl progress") return true;
  return false;
}

/// Only root can count the ranks of other users.
int count_ranks() {
  std::error_code ignored;
  const fs::path network = fs::read_symlink("/proc/self/ns/net", ignored);
  int ranks = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", ignored))
    if (parse_integer(entry.path().filename().string()) && is_rank(entry.path(), network)) ++ranks;
  return ranks;
}

std::string os_name() {
  std::ifstream file("/etc/os-release");
  constexpr std::string_view kKey = "PRETTY_NAME=";
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(kKey)) continue;
    line.erase(0, kKey.size());
    std::erase(line, '"');
    return line;
  }
  return {};
}

void gather_memory(HostFacts& facts) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    const auto words = cluster::words_of(line);
    if (words.size() > 1 && words[0] == "MemTotal:")
      facts.memory_gib = static_cast<double>(cluster::count_of(words[1])) / (1 << 20);
  }
  struct statvfs shared = {};
  if (::statvfs("/dev/shm", &shared) == 0)
    facts.shared_kib = static_cast<long>(shared.f_bavail * shared.f_frsize / 1024);
  facts.shared_writable = ::access("/dev/shm", W_OK) == 0;
}

}  // namespace

void gather_linux(HostFacts& facts, const Programs& programs) {
  facts.system = cluster::System::gnu_linux;
  facts.os = os_name();
  facts.boot = first_line("/proc/sys/kernel/random/boot_id");
  const fs::path frequency = "/sys/devices/system/cpu/cpu0/cpufreq";
  facts.governor = first_line(frequency / "scaling_governor");
  facts.mhz = small(first_line(frequency / "scaling_cur_freq")) / 1000;
  facts.most_mhz = small(first_line(frequency / "cpuinfo_max_freq")) / 1000;
  const std::string load = first_line("/proc/loadavg");
  facts.load = parse_number(load.substr(0, load.find(' '))).value_or(0);
  facts.ranks = count_ranks();
  gather_memory(facts);
  gather_linux_networks(facts, programs);
  gather_rdma(facts);
  gather_thunderbolt(facts);
  facts.network_manager = network_manager_of(facts, programs);
}

void gather_linux_networks(HostFacts& facts, const Programs& programs) {
  gather_interfaces(facts);
  gather_addresses(facts);
  gather_addresses6(facts);
  gather_routes(facts);
  gather_in_use(facts, programs);
}

}  // namespace mccl::cli::probe
