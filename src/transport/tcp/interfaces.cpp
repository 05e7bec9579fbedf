#include "transport/tcp/interfaces.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#ifdef __APPLE__
#include <net/if_media.h>
#include <net/route.h>
#include <sys/socket.h>
#include <sys/sysctl.h>
#endif

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string_view>
#include <system_error>

#include "base/first_line.h"
#include "base/rank_path.h"
#include "mccl/error.h"
#include "transport/tcp/socket.h"

namespace mccl::transport::tcp {

namespace {

int prefix_bits_of(const sockaddr* mask, int family) {
  if (mask == nullptr) return 0;
  const unsigned char* bytes = family == AF_INET
                                   ? reinterpret_cast<const unsigned char*>(
                                         &reinterpret_cast<const sockaddr_in*>(mask)->sin_addr)
                                   : reinterpret_cast<const sockaddr_in6*>(mask)->sin6_addr.s6_addr;
  int bits = 0;
  for (int i = 0; i < (family == AF_INET ? 4 : 16); ++i) bits += std::popcount(bytes[i]);
  return bits;
}

/// Returns the MTU of an interface; 0 if the system does not report it. Uses ioctl, which queries
/// the network namespace of this process; a mounted /sys may show another namespace.
int mtu_of(const char* interface_name) {
  const Socket probe(::socket(AF_INET, SOCK_DGRAM, 0));
  ifreq request = {};
  std::strncpy(request.ifr_name, interface_name, sizeof request.ifr_name - 1);
  if (!probe || ::ioctl(probe.descriptor(), SIOCGIFMTU, &request) != 0) return 0;
  return request.ifr_mtu;
}

std::string printable(std::string text) {
  std::erase_if(text, [](unsigned char c) { return std::isgraph(c) == 0; });
  return text.substr(0, 128);
}

}  // namespace

std::string Medium::text() const {
  std::string text = kind == Kind::wireless ? "wireless" : "";
  const auto add = [&](const std::string& word) { text += (text.empty() ? "" : " ") + word; };
  if (mbit_per_s >= 1000) {
    add(fmt::format("{:g} Gbit/s", mbit_per_s / 1000.0));
  } else if (mbit_per_s > 0) {
    add(fmt::format("{} Mbit/s", mbit_per_s));
  }
  if (mtu > 0) add(fmt::format("MTU {}", mtu));
  return text;
}

bool is_better(const Medium& a, const Medium& b) {
  if (a.kind != b.kind) return a.kind < b.kind;
  return a.mbit_per_s > b.mbit_per_s;
}

#ifdef __APPLE__

namespace {

/// True for interfaces without a cable or antenna, and for Apple's peer-to-peer wireless
/// interfaces.
bool is_software(std::string_view name) {
  for (const std::string_view prefix :
       {"utun", "awdl", "llw", "vmenet", "gif", "stf", "ap", "anpi"}) {
    if (name.starts_with(prefix)) return true;
  }
  // bridge0 joins the Thunderbolt ports, so it does not count as software. Bridges of virtual
  // machines have numbers of three digits: bridge100 and up.
  constexpr std::string_view kBridge = "bridge";
  return name.starts_with(kBridge) && name.size() >= kBridge.size() + 3;
}

bool is_wireless(const std::string& name) {
  const Socket probe(::socket(AF_INET, SOCK_DGRAM, 0));
  ifmediareq request = {};
  name.copy(request.ifm_name, sizeof request.ifm_name - 1);
  return probe && ::ioctl(probe.descriptor(), SIOCGIFMEDIA, &request) == 0 &&
         IFM_TYPE(request.ifm_current) == IFM_IEEE80211;
}

}  // namespace

/// Uses the 64-bit interface list (NET_RT_IFLIST2): the older list cannot represent more than 4
/// Gbit/s.
Medium medium_of(const std::string& name, const std::string&) {
  Medium medium;
  if (is_software(name)) medium.kind = Medium::Kind::software;
  if (is_wireless(name)) medium.kind = Medium::Kind::wireless;
  std::array<int, 6> path = {
      CTL_NET, PF_ROUTE, 0, 0, NET_RT_IFLIST2, static_cast<int>(::if_nametoindex(name.c_str()))};
  std::size_t length = 0;
  if (::sysctl(path.data(), path.size(), nullptr, &length, nullptr, 0) != 0) return medium;
  std::vector<char> list(length);
  if (::sysctl(path.data(), path.size(), list.data(), &length, nullptr, 0) != 0) return medium;
  if_msghdr2 entry;
  if (length < sizeof entry) return medium;
  std::memcpy(&entry, list.data(), sizeof entry);
  if (entry.ifm_type != RTM_IFINFO2) return medium;
  if (medium.kind != Medium::Kind::software)
    medium.mbit_per_s = static_cast<int>(entry.ifm_data.ifi_baudrate / 1'000'000);
  return medium;
}

#else

namespace {

namespace fs = std::filesystem;

/// Maximum depth of nested bonds, bridges and VLANs that kind_of() follows.
constexpr int kMostLayers = 4;

int number_of(const fs::path& path) {
  return std::max(0, static_cast<int>(std::strtol(first_line(path).c_str(), nullptr, 10)));
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// Returns the kind of an interface. A bond, bridge or VLAN has the best kind of its lower
/// interfaces.
Medium::Kind kind_of(const fs::path& interface, int layers) {
  if (is_there(interface / "wireless") || is_there(interface / "phy80211"))
    return Medium::Kind::wireless;
  if (is_there(interface / "device")) return Medium::Kind::cable;
  Medium::Kind best = Medium::Kind::software;
  if (layers == 0) return best;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(interface, ignored)) {
    if (entry.path().filename().string().starts_with("lower_"))
      best = std::min(best, kind_of(entry.path(), layers - 1));
  }
  return best;
}

/// Returns the speed of a Thunderbolt port in Mbit/s; 0 if unknown. The network driver reports no
/// speed, but the port reports the speed per lane: "20.0 Gb/s".
int thunderbolt_mbit(const fs::path& interface) {
  std::error_code failure;
  const fs::path device = fs::canonical(interface / "device", failure);
  if (failure) return 0;
  const fs::path port = device.parent_path();
  const std::string speed = first_line(port / "rx_speed");
  if (!speed.ends_with("Gb/s")) return 0;
  return static_cast<int>(1000 * std::strtod(speed.c_str(), nullptr)) *
         std::max(1, number_of(port / "rx_lanes"));
}

}  // namespace

Medium medium_of(const std::string& name, const std::string& system) {
  const fs::path interface = fs::path(system) / name;
  Medium medium;
  medium.kind = kind_of(interface, kMostLayers);
  if (medium.kind == Medium::Kind::software) return medium;
  medium.mbit_per_s = number_of(interface / "speed");
  if (medium.mbit_per_s == 0) medium.mbit_per_s = thunderbolt_mbit(interface);
  return medium;
}

#endif

bool InterfaceAddress::reaches(const Address& other) const {
  const auto mine = address.raw();
  const auto theirs = other.raw();
  if (mine.size() != theirs.size() || prefix_bits <= 0) return false;
  int bits = prefix_bits;
  for (std::size_t i = 0; i < mine.size() && bits > 0; ++i, bits -= 8) {
    const int mask = bits >= 8 ? 0xff : (0xff << (8 - bits)) & 0xff;
    if (((mine[i] ^ theirs[i]) & mask) != 0) return false;
  }
  return true;
}

std::string InterfaceAddress::text() const {
  const std::string through = medium.text();
  return through.empty() ? name : name + " " + through;
}

std::vector<InterfaceAddress> list_interfaces() {
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) {
    throw Error(fmt::format("cannot list the network interfaces: {}",
                            std::system_category().message(errno)));
  }
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(found, freeifaddrs);
  std::vector<InterfaceAddress> interfaces;
  std::map<std::string, Medium> media;  // Keyed by the name of the interface.
  for (const ifaddrs* entry = found; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const auto address = Address::from(
        entry->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    if (!address) continue;
    const auto [medium, is_new] = media.try_emplace(entry->ifa_name);
    if (is_new) {
      medium->second = medium_of(entry->ifa_name);
      medium->second.mtu = mtu_of(entry->ifa_name);
    }
    interfaces.push_back({entry->ifa_name, *address, prefix_bits_of(entry->ifa_netmask, family),
                          (entry->ifa_flags & IFF_UP) != 0, (entry->ifa_flags & IFF_LOOPBACK) != 0,
                          (entry->ifa_flags & IFF_RUNNING) != 0, medium->second});
  }
  return interfaces;
}

const InterfaceAddress* find_interface(const std::vector<InterfaceAddress>& interfaces,
                                       const Address& address) {
  const auto found =
      std::find_if(interfaces.begin(), interfaces.end(),
                   [&](const InterfaceAddress& each) { return each.address.same_host(address); });
  return found == interfaces.end() ? nullptr : &*found;
}

std::optional<Address> route_source(const Address& destination) {
  const Socket probe(::socket(destination.family(), SOCK_DGRAM, 0));
  if (!probe) return {};
  make_non_blocking(probe);
  // Connecting a datagram socket only looks up the route; the port must not be 0 on macOS.
  const Address target = destination.port() != 0 ? destination : destination.with_port(9);
  if (::connect(probe.descriptor(), target.data(), target.size()) != 0) return {};
  return probe.local();
}

std::string host_identity() {
#ifdef __APPLE__
  char uuid[64] = {};
  std::size_t length = sizeof uuid - 1;
  if (sysctlbyname("kern.bootsessionuuid", uuid, &length, nullptr, 0) == 0 && uuid[0] != '\0')
    return "boot-" + printable(uuid);
  return "name-" + host_name();
#else
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  boot = printable(boot);
  struct stat space = {};
  const bool known = ::stat("/proc/self/ns/net", &space) == 0;
  if (boot.empty() || !known) return "name-" + host_name();
  return fmt::format("boot-{}-net-{}", boot, static_cast<unsigned long long>(space.st_ino));
#endif
}

}  // namespace mccl::transport::tcp
