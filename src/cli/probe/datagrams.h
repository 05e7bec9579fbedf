// Single packets of UDP.
#pragma once

#include <cstdint>
#include <string>

#include "transport/tcp/socket.h"

namespace mccl::cli::probe {

using transport::tcp::Address;
using transport::tcp::Socket;

/// Bound to the port, or to a free one for 0. Empty where the system refuses. A socket of IPv6
/// hears IPv4 as well, and learns through which interface a packet came.
Socket packet_socket(int family, std::uint16_t port);

struct Packet {
  std::string head;  ///< The first line, at most 400 bytes.
  Address from;
  unsigned interface = 0;  ///< The number of the one that it came through; 0 where it is not known.
  bool to_all = false;     ///< It was sent to all hosts of the network.
};

/// A packet that waits; without one the head is empty.
Packet receive(const Socket& socket);

bool send(const Socket& socket, const std::string& bytes, const Address& to);

}  // namespace mccl::cli::probe
