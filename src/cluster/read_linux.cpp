// Interfaces, addresses and devices as Linux tells of them.
#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cstdlib>

#include "base/value_text.h"
#include "cluster/read_facts.h"

namespace mccl::cluster {
namespace {

constexpr std::size_t kMostInterfaces = 4096;
constexpr std::size_t kMostAddresses = 4096;
constexpr std::size_t kMostRoutes = 10'000;
constexpr std::size_t kMostDevices = 256;
constexpr unsigned kUp = 1;  ///< IFF_UP.

std::vector<std::string_view> fields_of(std::string_view line) {
  std::vector<std::string_view> fields;
  for (std::size_t begin = 0; begin <= line.size();) {
    const std::size_t end = std::min(line.find('|', begin), line.size());
    fields.push_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
  return fields;
}

int small(std::string_view text) {
  return static_cast<int>(std::min<long>(count_of(text), INT_MAX));
}

/// A veth is the cable of a container, or of a test; a virtual machine's is a device.
Medium medium_of(std::string_view name, std::string_view wireless, std::string_view device,
                 std::string_view driver) {
  if (name == "lo") return Medium::loopback;
  if (wireless == "yes") return Medium::wireless;
  if (driver.find("thunderbolt") != driver.npos) return Medium::thunderbolt;
  return device == "yes" ? Medium::cable : Medium::software;
}

void read_interfaces(HostFacts& facts, std::string_view section) {
  for (const std::string_view line : lines_of(section)) {
    const auto fields = fields_of(line);
    if (fields.size() != 11 || fields[0].empty() || facts.interfaces.size() == kMostInterfaces) {
      note_odd(facts, "/sys/class/net", "11 fields of an interface", line);
      return;
    }
    Interface interface;
    interface.name = plain_name(facts, "/sys/class/net", fields[0]);
    if (interface.name.empty()) continue;
    interface.medium = medium_of(fields[0], fields[6], fields[7], fields[8]);
    const std::string flags(fields[10]);
    interface.up = (std::strtoul(flags.c_str(), nullptr, 16) & kUp) != 0;
    if (!fields[2].empty()) interface.carrier = fields[2] == "1";
    interface.mbit_per_s = interface.medium == Medium::software ? 0 : small(fields[3]);
    interface.mtu = small(fields[4]);
    interface.mac = fields[5];
    interface.bridge = plain_name(facts, "/sys/class/net", fields[9]);
    interface.joins = fields[7] == "joins";
    facts.interfaces.push_back(std::move(interface));
  }
}

/// "… scope global dynamic": not one that is given up soon, or not given yet.
bool is_lasting(const std::vector<std::string_view>& words) {
  const auto says = [&](std::string_view word) {
    return std::ranges::find(words, word) != words.end();
  };
  return says("global") && !says("temporary") && !says("deprecated") && !says("tentative") &&
         !says("dadfailed");
}

/// "2: eth0    inet 10.0.0.1/24 brd …". A virtual interface is "eth0@if3" to some commands.
void read_addresses(HostFacts& facts, std::string_view section) {
  std::size_t count = 0;
  for (const std::string_view line : lines_of(section)) {
    const auto words = words_of(line);
    if (++count > kMostAddresses || words.size() < 4 || !words[0].ends_with(':')) {
      note_odd(facts, "ip -o addr", "NUMBER: NAME inet ADDRESS", line);
      return;
    }
    const std::string name(words[1].substr(0, words[1].find('@')));
    const auto found = std::ranges::find(facts.interfaces, name, &Interface::name);
    if (found == facts.interfaces.end()) continue;
    if (words[2] == "inet") {
      // A tunnel has the address of its other end behind "peer".
      if (const auto network = parse_network(words[3])) found->addresses.push_back(*network);
    } else if (words[2] == "inet6" && is_lasting(words)) {
      if (const auto network = parse_network6(words[3])) found->addresses6.push_back(*network);
    } else if (words[2] == "inet6" && words[3].starts_with("fe80")) {
      found->link_local.emplace_back(words[3].substr(0, words[3].find('/')));
    }
  }
}

void read_routes(HostFacts& facts, std::string_view section) {
  for (const std::string_view line : lines_of(section)) {
    const auto words = words_of(line);
    const std::size_t at = !words.empty() && parse_network(words[0]) ? 0 : 1;
    if (words.size() <= at || words[0] == "default") continue;
    if (facts.routes.size() == kMostRoutes) return;
    if (const auto network = parse_network(words[at])) facts.routes.push_back(*network);
  }
}

/// "device|NAME|INTERFACE|4: ACTIVE|100 Gb/sec (4X EDR)", and "gid|NAME|GID".
void read_rdma(HostFacts& facts, std::string_view section) {
  for (const std::string_view line : lines_of(section)) {
    const auto fields = fields_of(line);
    if (fields[0] == "device" && fields.size() == 5 && facts.rdma.size() < kMostDevices) {
      RdmaDevice device;
      device.name = plain_name(facts, "/sys/class/infiniband", fields[1]);
      if (device.name.empty()) continue;
      device.interface = fields[2];
      device.state = trimmed(fields[3].substr(std::min(fields[3].find(':') + 1, fields[3].size())));
      const auto rate = parse_number(fields[4].substr(0, fields[4].find(' ')));
      device.mbit_per_s = static_cast<int>(std::clamp(rate.value_or(0), 0.0, 1e6) * 1000);
      const auto interface =
          std::ranges::find(facts.interfaces, device.interface, &Interface::name);
      if (interface != facts.interfaces.end()) interface->rdma = device.name;
      facts.rdma.push_back(std::move(device));
    } else if (fields[0] == "gid" && fields.size() == 3) {
      const auto device = std::ranges::find(facts.rdma, fields[1], &RdmaDevice::name);
      if (device != facts.rdma.end()) device->gids.emplace_back(fields[2]);
    } else {
      note_odd(facts, "/sys/class/infiniband", "a device or a GID", line);
      return;
    }
  }
}

/// Two lanes of "20.0 Gb/s" are 40 Gbit/s.
void read_thunderbolt(HostFacts& facts, std::string_view section) {
  for (const std::string_view line : lines_of(section)) {
    const auto fields = fields_of(line);
    if (fields.size() != 6 || facts.ports.size() == kMostDevices) {
      note_odd(facts, "/sys/bus/thunderbolt", "6 fields of a cable", line);
      return;
    }
    Port port;
    port.receptacle = fields[0];
    port.interface = plain_name(facts, "/sys/bus/thunderbolt", fields[0]);
    port.own = lower_case(fields[1]);
    port.peer = lower_case(fields[2]);
    port.peer_name = fields[3];
    const double lane = parse_number(fields[4].substr(0, fields[4].find(' '))).value_or(0);
    const auto lanes = static_cast<double>(std::clamp<long>(count_of(fields[5]), 1, 4));
    port.mbit_per_s = static_cast<int>(std::clamp(lane, 0.0, 1000.0) * 1000 * lanes);
    const auto interface = std::ranges::find(facts.interfaces, port.interface, &Interface::name);
    if (interface != facts.interfaces.end() && interface->mbit_per_s == 0)
      interface->mbit_per_s = port.mbit_per_s;
    facts.ports.push_back(std::move(port));
  }
}

}  // namespace

void read_linux_network(HostFacts& facts, const Said& said) {
  const auto read = [&](const char* name, void (*reader)(HostFacts&, std::string_view)) {
    if (const std::string* section = said.section(name)) reader(facts, *section);
  };
  read("net", read_interfaces);
  read("address", read_addresses);
  read("route", read_routes);
  read("rdma", read_rdma);
  read("thunderbolt", read_thunderbolt);
  if (facts.interfaces.empty()) note_odd(facts, "/sys/class/net", "the host's interfaces", "");
}

}  // namespace mccl::cluster
