#include "cli/probe/packets.h"

#include <fmt/format.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <set>
#include <vector>

#include "base/clock.h"
#include "base/thread.h"
#include "cluster/read_facts.h"
#include "transport/tcp/interfaces.h"

namespace mccl::cli::probe {
namespace {

using namespace std::chrono_literals;

constexpr auto kBetweenLooks = 100ms;
constexpr auto kForEcho = 150ms;
constexpr int kTries = 4;
constexpr std::size_t kMostBytes = 65536;
constexpr const char* kAllHosts = "ff02::1";

/// An interface that has just come up cannot send from its link-local address before the system has
/// made sure that nobody else on the cable has it (RFC 4862, 5.4: a random delay of up to a second,
/// then one more second).
constexpr auto kForAddresses = 2500ms;
constexpr auto kBetweenTries = 20ms;

/// Of the largest IPv4 or IPv6 header, and UDP's.
int header_bytes(const Address& to) { return (to.family() == AF_INET ? 20 : 40) + 8; }

Socket packet_socket(int family, std::uint16_t port) {
  Socket socket(::socket(family, SOCK_DGRAM, 0));
  if (!socket) return socket;
  const int on = 1;
  const int off = 0;
  if (family == AF_INET6) {
    ::setsockopt(socket.descriptor(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    ::setsockopt(socket.descriptor(), IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof on);
  }
  if (port != 0) ::setsockopt(socket.descriptor(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const Address here = Address::wildcard(family, port);
  if (::bind(socket.descriptor(), here.data(), here.size()) != 0) socket.close();
  return socket;
}

/// Packets leave whole or not at all, whatever the system thinks that it knows of the path.
void forbid_pieces([[maybe_unused]] const Socket& socket, [[maybe_unused]] int family) {
#if defined(IP_MTU_DISCOVER) && defined(IP_PMTUDISC_PROBE)
  const int probe = IP_PMTUDISC_PROBE;
  if (family == AF_INET)
    ::setsockopt(socket.descriptor(), IPPROTO_IP, IP_MTU_DISCOVER, &probe, sizeof probe);
#endif
#if defined(IPV6_MTU_DISCOVER) && defined(IPV6_PMTUDISC_PROBE)
  const int probe6 = IPV6_PMTUDISC_PROBE;
  if (family == AF_INET6)
    ::setsockopt(socket.descriptor(), IPPROTO_IPV6, IPV6_MTU_DISCOVER, &probe6, sizeof probe6);
#endif
#ifdef IP_DONTFRAG
  const int on = 1;
  if (family == AF_INET) ::setsockopt(socket.descriptor(), IPPROTO_IP, IP_DONTFRAG, &on, sizeof on);
#endif
}

struct Packet {
  std::string head;
  Address from;
  unsigned interface = 0;  ///< Its index.
};

/// One that waits; without any, the head is empty.
Packet receive(const Socket& socket) {
  Packet packet;
  std::vector<char> bytes(kMostBytes);
  sockaddr_storage from = {};
  alignas(cmsghdr) std::array<char, 256> control = {};
  iovec part = {bytes.data(), bytes.size()};
  msghdr message = {};
  message.msg_name = &from;
  message.msg_namelen = sizeof from;
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t n = ::recvmsg(socket.descriptor(), &message, MSG_DONTWAIT);
  if (n <= 0) return packet;
  const std::string_view all(bytes.data(), static_cast<std::size_t>(n));
  packet.head = all.substr(0, std::min(all.find('\n'), std::size_t{400}));
  if (const auto address =
          Address::from(reinterpret_cast<const sockaddr*>(&from), message.msg_namelen))
    packet.from = *address;
  for (cmsghdr* entry = CMSG_FIRSTHDR(&message); entry != nullptr;
       entry = CMSG_NXTHDR(&message, entry)) {
    if (entry->cmsg_level != IPPROTO_IPV6 || entry->cmsg_type != IPV6_PKTINFO) continue;
    in6_pktinfo about = {};
    std::memcpy(&about, CMSG_DATA(entry), sizeof about);
    packet.interface = static_cast<unsigned>(about.ipi6_ifindex);
  }
  return packet;
}

/// Those that are up and have a link-local address, be it one that is still being looked at.
std::set<std::string> calling_interfaces() {
  std::set<std::string> names;
  for (const transport::tcp::Interface& interface : transport::tcp::list_interfaces())
    if (interface.up && !interface.loopback && interface.address.is_link_local() &&
        interface.address.family() == AF_INET6)
      names.insert(interface.name);
  return names;
}

}  // namespace

PacketEcho::PacketEcho(std::string key, Answers& answers)
    : key_(std::move(key)),
      answers_(answers),
      echo_(packet_socket(AF_INET6, 0)),
      calls_(packet_socket(AF_INET6, kCallPort)) {
  if (!echo_) echo_ = packet_socket(AF_INET, 0);
  if (echo_) port_ = echo_.local().port();
  thread_ = start_thread("mccl-packets", [this] { run(); });
}

PacketEcho::~PacketEcho() {
  stopping_ = true;
  thread_.join();
}

void PacketEcho::run() {
  while (!stopping_) {
    std::array<pollfd, 2> waiting = {pollfd{echo_.descriptor(), POLLIN, 0},
                                     pollfd{calls_.descriptor(), POLLIN, 0}};
    ::poll(waiting.data(), waiting.size(), kBetweenLooks / 1ms);
    if (waiting[0].revents != 0) take(echo_, false);
    if (waiting[1].revents != 0) take(calls_, true);
  }
}

void PacketEcho::take(const Socket& socket, bool calls) {
  const Packet packet = receive(socket);
  if (!packet.head.starts_with(key_ + " ")) return;
  if (!calls) {
    ::sendto(socket.descriptor(), packet.head.data(), packet.head.size(), 0, packet.from.data(),
             packet.from.size());
    return;
  }
  std::array<char, IF_NAMESIZE> name = {};
  if (::if_indextoname(packet.interface, name.data()) == nullptr) return;
  const auto words = cluster::words_of(packet.head);
  if (words.size() != 3) return;
  answers_.say({{"heard",
                 {{"at", name.data()},
                  {"name", cluster::count_of(words[1])},
                  {"from", std::string(words[2])}}}});
}

bool packet_arrives(const std::string& key, const Address& to, const Address* source, int bytes) {
  Socket socket(::socket(to.family(), SOCK_DGRAM, 0));
  if (!socket) return false;
  if (source != nullptr) {
    const Address from = source->with_port(0);
    if (::bind(socket.descriptor(), from.data(), from.size()) != 0) return false;
  }
  forbid_pieces(socket, to.family());
  std::string packet = fmt::format("{} {}\n", key, bytes);
  const auto payload = static_cast<std::size_t>(std::max(0, bytes - header_bytes(to)));
  if (packet.size() < payload) packet.resize(payload, '.');
  const std::string expected = packet.substr(0, packet.find('\n'));
  for (int tried = 0; tried < kTries; ++tried) {
    ::sendto(socket.descriptor(), packet.data(), packet.size(), 0, to.data(), to.size());
    pollfd waiting = {socket.descriptor(), POLLIN, 0};
    if (::poll(&waiting, 1, kForEcho / 1ms) > 0 && receive(socket).head == expected) return true;
  }
  return false;
}

void call(const std::string& key, const std::string& name) {
  const Socket socket(::socket(AF_INET6, SOCK_DGRAM, 0));
  std::set<std::string> called;
  const Clock::time_point limit = Clock::now() + kForAddresses;
  for (bool waits = true; waits;) {
    waits = false;
    for (const std::string& interface : calling_interfaces()) {
      if (called.contains(interface)) continue;
      const auto to = Address::parse_numeric(fmt::format("{}%{}", kAllHosts, interface), kCallPort);
      if (!to) continue;
      const std::string text = fmt::format("{} {} {}\n", key, name, interface);
      const ssize_t sent =
          ::sendto(socket.descriptor(), text.data(), text.size(), 0, to->data(), to->size());
      if (sent >= 0)
        called.insert(interface);
      else if (errno == EADDRNOTAVAIL)
        waits = true;
    }
    if (Clock::now() >= limit) return;
    if (waits) ::poll(nullptr, 0, kBetweenTries / 1ms);
  }
}

}  // namespace mccl::cli::probe
