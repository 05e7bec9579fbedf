#include "cli/probe/datagrams.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <vector>

namespace mccl::cli::probe {
namespace {

constexpr std::size_t kMostBytes = 65536;
constexpr std::size_t kLongestHead = 400;

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

}  // namespace mccl::cli::probe
