// Parses macOS's reports of interfaces, cables, devices and routes.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "base/value_text.h"
#include "cluster/read_facts.h"
#include "mccl/error.h"

namespace mccl::cluster {
namespace {

using nlohmann::json;

constexpr int kMostNesting = 16;  ///< Computers behind more docks than this are ignored.
constexpr std::size_t kMostPorts = 256;
constexpr std::size_t kMostInterfaces = 4096;
constexpr std::size_t kMostAddresses = 128;
constexpr std::size_t kMostRoutes = 10'000;

/// Parses a rate such as "80 Gb/s" or "Up to 120 Gb/s" into Mbit/s; 0 if there is no number.
int rate_of(const std::string& text) {
  for (const std::string_view word : words_of(text))
    if (const auto number = parse_number(word))
      return static_cast<int>(std::clamp(*number, 0.0, 1e5) * 1000);
  return 0;
}

/// Parses a word such as "(10Gbase-T" or "(1000baseT" into Mbit/s; 0 for any other word.
int media_rate(std::string_view word) {
  if (!word.starts_with('(')) return 0;
  const std::size_t end = std::min(word.find_first_not_of("0123456789", 1), word.size());
  const bool giga = word.substr(end).starts_with('G');
  if (!lower_case(word.substr(end + (giga ? 1 : 0))).starts_with("base")) return 0;
  const long number = std::min(count_of(word.substr(1, end - 1)), 1'000'000L);
  return static_cast<int>(std::min(number * (giga ? 1000 : 1), 1'000'000L));
}

/// Finds the first computer behind a bus, recursively, and records it as the peer of the port. A
/// computer has a domain UUID of its own. A dock has none, and its "_items" list the devices behind
/// it. Returns false if there is no computer.
bool find_peer(const json& items, int depth, ThunderboltPort& port) {
  if (!items.is_array() || depth > kMostNesting) return false;
  return std::ranges::any_of(items, [&](const json& item) {
    if (!item.is_object()) return false;
    const std::string domain = lower_case(value_at<std::string>(item, "domain_uuid_key"));
    if (domain.empty() || domain == port.own) {
      const auto below = item.find("_items");
      return below != item.end() && find_peer(*below, depth + 1, port);
    }
    port.peer_id = domain;
    port.peer = value_at<std::string>(item, "device_name_key");
    port.through_dock = depth > 0;
    return true;
  });
}

/// Returns the receptacle (socket for a cable) of a bus; null for an internal bus, which has none.
const json* receptacle_of(const json& bus) {
  for (const auto& [key, value] : bus.items())
    if (key.starts_with("receptacle_") && key.ends_with("_tag") && value.is_object()) return &value;
  return nullptr;
}

void read_bus(HostFacts& facts, const json& bus) {
  if (!bus.is_object() || facts.ports.size() >= kMostPorts) return;
  const json* receptacle = receptacle_of(bus);
  if (receptacle == nullptr) return;
  ThunderboltPort port;
  port.receptacle = value_at<std::string>(*receptacle, "receptacle_id_key");
  port.own = lower_case(value_at<std::string>(bus, "domain_uuid_key"));
  port.mbit_per_s = rate_of(value_at<std::string>(*receptacle, "current_speed_key"));
  if (const auto items = bus.find("_items"); items != bus.end()) find_peer(*items, 0, port);
  facts.ports.push_back(std::move(port));
}

void read_thunderbolt(HostFacts& facts, std::string_view section) {
  if (trimmed(section).empty()) return;
  try {
    const json read = parse_json(section, "system_profiler", "JSON");
    const auto buses = read.is_object() ? read.find("SPThunderboltDataType") : read.end();
    if (!read.is_object() || buses == read.end() || !buses->is_array()) {
      note_odd(facts, "system_profiler SPThunderboltDataType -json", "a list of buses", section);
      return;
    }
    for (const json& bus : *buses) read_bus(facts, bus);
  } catch (const InvalidArgument&) {
    note_odd(facts, "system_profiler SPThunderboltDataType -json", "JSON", section);
  }
}

InterfaceKind medium_of(std::string_view name) {
  if (name.starts_with("lo")) return InterfaceKind::loopback;
  for (const std::string_view prefix :
       {"utun", "awdl", "llw", "vmenet", "gif", "stf", "ap", "anpi", "bridge"})
    if (name.starts_with(prefix)) return InterfaceKind::software;
  return InterfaceKind::cable;
}

/// False for temporary, deprecated, unusable, loopback and link-local addresses. `words` is a line
/// such as "inet6 2001:db8::1 prefixlen 64 autoconf secured". A link-local address is recognised by
/// its zone, such as "%en5".
bool is_lasting(const std::vector<std::string_view>& words) {
  const auto says = [&](std::string_view word) {
    return std::ranges::find(words, word) != words.end();
  };
  return words[1].find('%') == std::string_view::npos && words[1] != "::1" && !says("temporary") &&
         !says("deprecated") && !says("tentative") && !says("duplicated");
}

/// Parses one line of an interface's block, split into words.
void read_interface_line(HostFacts& facts, const std::vector<std::string_view>& words) {
  if (words.size() < 2) return;
  Interface& interface = facts.interfaces.back();
  if (words[0] == "ether") interface.mac = words[1];
  if (words[0] == "media:")
    for (const std::string_view word : words)
      if (const int rate = media_rate(word); rate > 0) interface.mbit_per_s = rate;
  if (words[0] == "status:") interface.carrier = words[1] == "active";
  std::optional<Network> network;
  if (words.size() >= 4 && words[0] == "inet")
    if (const auto bits = prefix_of_mask(words[3]))
      network = parse_network(fmt::format("{}/{}", words[1], *bits));
  if (words.size() >= 4 && words[0] == "inet6" && words[2] == "prefixlen" && is_lasting(words))
    network = parse_network(fmt::format("{}/{}", words[1], words[3]));
  if (network && interface.addresses.size() < kMostAddresses)
    interface.addresses.push_back(*network);
  if (words[0] == "inet6" && words[1].starts_with("fe80"))
    interface.link_local.emplace_back(words[1].substr(0, words[1].find('%')));
  if (words[0] == "member:")
    if (Interface* member = facts.interface(words[1])) member->bridge = interface.name;
}

/// Parses the output of `ifconfig -a`. A block begins with a line such as
/// "en5: flags=8863<UP,…> mtu 1500", and its other lines are indented.
void read_interfaces(HostFacts& facts, std::string_view section) {
  std::vector<Interface>& all = facts.interfaces;
  bool known = false;  // False if the interface of the indented lines was skipped.
  for (const std::string_view line : lines_of(section)) {
    const auto words = words_of(line);
    if (words.empty()) continue;
    if (line.front() == ' ' || line.front() == '\t') {
      if (known) read_interface_line(facts, words);
      continue;
    }
    if (all.size() == kMostInterfaces || !words[0].ends_with(':') || words.size() < 2 ||
        !words[1].starts_with("flags=")) {
      note_odd(facts, "ifconfig -a", "NAME: flags=…", line);
      return;
    }
    Interface interface;
    interface.name = plain_name(facts, "ifconfig -a", words[0].substr(0, words[0].size() - 1));
    known = !interface.name.empty();
    if (!known) continue;
    interface.kind = medium_of(interface.name);
    interface.joins = interface.kind == InterfaceKind::software;
    interface.up = words[1].find("<UP") != line.npos || words[1].find(",UP") != line.npos;
    for (std::size_t i = 2; i + 1 < words.size(); ++i)
      if (words[i] == "mtu")
        interface.mtu = static_cast<int>(std::min(count_of(words[i + 1]), 1L << 20));
    all.push_back(std::move(interface));
  }
}

/// Parses pairs of lines such as "Hardware Port: Thunderbolt 1" and "Device: en5".
void read_hardware_ports(HostFacts& facts, std::string_view section) {
  constexpr std::string_view kPort = "Hardware Port: ";
  constexpr std::string_view kDevice = "Device: ";
  constexpr std::string_view kThunderbolt = "Thunderbolt ";
  std::string_view port;
  for (const std::string_view line : lines_of(section)) {
    if (line.starts_with(kPort)) port = trimmed(line.substr(kPort.size()));
    if (!line.starts_with(kDevice)) continue;
    const std::string_view device = trimmed(line.substr(kDevice.size()));
    Interface* interface = facts.interface(device);
    if (port == "Wi-Fi" && interface) interface->kind = InterfaceKind::wireless;
    if (!port.starts_with(kThunderbolt)) continue;
    const std::string_view receptacle = port.substr(kThunderbolt.size());
    for (ThunderboltPort& socket : facts.ports) {
      if (socket.receptacle != receptacle) continue;
      socket.interface = interface ? std::string(device) : "";
      if (interface) interface->mbit_per_s = socket.peer_id.empty() ? 0 : socket.mbit_per_s;
    }
    if (interface && parse_integer(receptacle)) interface->kind = InterfaceKind::thunderbolt;
  }
}

/// Parses the output of ibv_devices: a line of names, a line of dashes, then lines such as
/// "rdma_en5  GUID".
void read_rdma(HostFacts& facts, std::string_view section) {
  for (const std::string_view line : lines_of(section)) {
    const auto words = words_of(line);
    if (words.size() != 2 || !words[0].starts_with("rdma_") || !is_plain_name(words[0])) continue;
    if (facts.rdma.size() == kMostPorts) return;
    RdmaDevice& device = facts.rdma.emplace_back();
    device.name = words[0];
    device.interface = words[0].substr(std::string_view("rdma_").size());
    if (Interface* interface = facts.interface(device.interface)) interface->rdma = device.name;
  }
}

/// Parses the output of netstat. "192.168.1" is a network of 24 bits, "192.168.1/22" gives the
/// prefix length, and an address of four numbers is a single host.
void read_routes(HostFacts& facts, std::string_view section) {
  for (const std::string_view line : lines_of(section)) {
    const auto words = words_of(line);
    if (words.empty() || facts.routes.size() == kMostRoutes) continue;
    const std::size_t slash = words[0].find('/');
    std::string address(words[0].substr(0, slash));
    auto dots = std::ranges::count(address, '.');
    int bits = static_cast<int>(8 * (dots + 1));
    for (; dots < 3; ++dots) address += ".0";
    if (slash != words[0].npos)
      bits = static_cast<int>(parse_integer(words[0].substr(slash + 1)).value_or(-1));
    const auto network = parse_network(fmt::format("{}/{}", address, bits));
    if (network && bits > 0) {
      const std::string_view interface = words.size() > 3 ? words[3] : "";
      facts.routes.push_back({*network, is_plain_name(interface) ? std::string(interface) : ""});
    }
  }
}

}  // namespace

void read_mac_network(HostFacts& facts, const Outputs& outputs) {
  const auto read = [&](const char* name, void (*reader)(HostFacts&, std::string_view)) {
    if (const auto found = outputs.find(name); found != outputs.end()) reader(facts, found->second);
  };
  read("ifconfig", read_interfaces);
  read("system_profiler", read_thunderbolt);
  read("networksetup", read_hardware_ports);
  read("ibv_devices", read_rdma);
  read("netstat", read_routes);
  if (const auto state = outputs.find("rdma_ctl"); state != outputs.end())
    facts.rdma_control = trimmed(state->second);
  if (facts.interfaces.empty()) note_odd(facts, "ifconfig -a", "the host's interfaces", "");
}

}  // namespace mccl::cluster
