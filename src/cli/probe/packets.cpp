#include "cli/probe/packets.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/thread.h"
#include "cluster/text.h"

namespace mccl::cli::probe {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMostBytes = 65536;
constexpr std::size_t kLongestHead = 400;
constexpr auto kBetweenLooksAtPackets = 100ms;
constexpr auto kForEcho = 150ms;
constexpr int kTries = 4;

/// Returns the total size of an IPv4 or IPv6 header without options and a UDP header, in bytes.
int header_bytes(const Address& to) { return (to.family() == AF_INET ? 20 : 40) + 8; }

/// Disables fragmentation. Packets are sent whole or not at all, whatever path MTU the system
/// assumes.
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

}  // namespace

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
  packet.head = all.substr(0, std::min(all.find('\n'), kLongestHead));
  if (const auto address =
          Address::from(reinterpret_cast<const sockaddr*>(&from), message.msg_namelen))
    packet.from = *address;
  for (cmsghdr* entry = CMSG_FIRSTHDR(&message); entry != nullptr;
       entry = CMSG_NXTHDR(&message, entry)) {
    if (entry->cmsg_level != IPPROTO_IPV6 || entry->cmsg_type != IPV6_PKTINFO) continue;
    in6_pktinfo about = {};
    std::memcpy(&about, CMSG_DATA(entry), sizeof about);
    packet.interface = static_cast<unsigned>(about.ipi6_ifindex);
    packet.to_all = IN6_IS_ADDR_MULTICAST(&about.ipi6_addr);
  }
  return packet;
}

bool send(const Socket& socket, const std::string& bytes, const Address& to) {
  return ::sendto(socket.descriptor(), bytes.data(), bytes.size(), 0, to.data(), to.size()) >= 0;
}

PacketEcho::PacketEcho(const Secret& secret)
    : secret_(secret), socket_(packet_socket(AF_INET6, 0)) {
  if (!socket_) socket_ = packet_socket(AF_INET, 0);
  if (socket_) port_ = socket_.local().port();
  thread_ = start_thread("mccl-packets", [this] { run(); });
}

PacketEcho::~PacketEcho() {
  stopping_ = true;
  thread_.join();
}

void PacketEcho::run() {
  while (!stopping_) {
    pollfd waiting = {socket_.descriptor(), POLLIN, 0};
    if (::poll(&waiting, 1, kBetweenLooksAtPackets / 1ms) <= 0) continue;
    const Packet packet = receive(socket_);
    const auto words = cluster::words_of(packet.head);
    if (words.size() != 3 || !secret_.is_proof(words[2], "sends", {words[0], words[1]})) continue;
    send(socket_, fmt::format("{} {}\n", words[0], secret_.prove("got", {words[0], words[1]})),
         packet.from);
  }
}

bool packet_arrives(const Secret& secret, const Address& to, const Address* source, int bytes) {
  Socket socket(::socket(to.family(), SOCK_DGRAM, 0));
  if (!socket) return false;
  if (source != nullptr) {
    const Address from = source->with_port(0);
    if (::bind(socket.descriptor(), from.data(), from.size()) != 0) return false;
  }
  forbid_pieces(socket, to.family());
  const std::string nonce = make_nonce();
  const std::string size = std::to_string(bytes);
  std::string packet = fmt::format("{} {} {}\n", nonce, size, secret.prove("sends", {nonce, size}));
  const auto payload = static_cast<std::size_t>(std::max(0, bytes - header_bytes(to)));
  if (packet.size() < payload) packet.resize(payload, '.');
  const std::string expected = fmt::format("{} {}", nonce, secret.prove("got", {nonce, size}));
  for (int tried = 0; tried < kTries; ++tried) {
    send(socket, packet, to);
    pollfd waiting = {socket.descriptor(), POLLIN, 0};
    if (::poll(&waiting, 1, kForEcho / 1ms) > 0 && receive(socket).head == expected) return true;
  }
  return false;
}

}  // namespace mccl::cli::probe
