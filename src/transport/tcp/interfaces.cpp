#include "transport/tcp/interfaces.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef __APPLE__
#include <sys/sysctl.h>
#endif

#include <algorithm>
#include <bit>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <system_error>

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

/// Returns 0 if the system does not report it. Uses ioctl because it queries the network namespace
/// of this process, which a mounted /sys may not show.
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

std::string host_name() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0) return "unknown";
  return printable(name);
}

bool Interface::reaches(const Address& other) const {
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

std::string Interface::text() const {
  const std::string through = medium.text();
  return through.empty() ? name : name + " " + through;
}

std::vector<Interface> list_interfaces() {
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) {
    throw Error(fmt::format("cannot list the network interfaces: {}",
                            std::system_category().message(errno)));
  }
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(found, freeifaddrs);
  std::vector<Interface> interfaces;
  std::map<std::string, Medium> media;  // An interface may have several addresses.
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

const Interface* find_interface(const std::vector<Interface>& interfaces, const Address& address) {
  const auto found = std::find_if(interfaces.begin(), interfaces.end(), [&](const Interface& each) {
    return each.address.same_host(address);
  });
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
