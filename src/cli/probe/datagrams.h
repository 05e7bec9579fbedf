// Single UDP packets.
#pragma once

#include <cstdint>
#include <string>

#include "transport/tcp/socket.h"

namespace mccl::cli::probe {

using transport::tcp::Address;
using transport::tcp::Socket;

/// Returns a UDP socket bound to `port`, or to a free port if `port` is 0. Empty if the system
/// refuses. An IPv6 socket also receives IPv4, and reports the interface through which a packet
/// came.
Socket packet_socket(int family, std::uint16_t port);

struct Packet {
  std::string head;  ///< The packet's first line, at most 400 bytes.
  Address from;
  unsigned interface = 0;  ///< Index of the receiving interface; 0: unknown.
  bool to_all = false;     ///< True if the packet was sent to all hosts of the network (multicast).
};

/// Returns a pending packet. Does not block; the head is empty if there is none.
Packet receive(const Socket& socket);

bool send(const Socket& socket, const std::string& bytes, const Address& to);

}  // namespace mccl::cli::probe
