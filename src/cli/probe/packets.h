// Single UDP packets, and tests which sizes of packets arrive.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

#include "cli/probe/secret.h"
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

/// Until it is destroyed, answers each packet that proves knowledge of the key. The answer is
/// smaller than the packet.
class PacketEcho {
 public:
  explicit PacketEcho(const Secret& secret);
  ~PacketEcho();
  PacketEcho(const PacketEcho&) = delete;
  PacketEcho& operator=(const PacketEcho&) = delete;

  /// Port at which packets are answered; 0 if the system provides no socket.
  std::uint16_t port() const { return port_; }

 private:
  void run();

  const Secret& secret_;
  Socket socket_;
  std::uint16_t port_ = 0;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

/// True if a packet of `bytes` bytes, including the headers of IP and UDP, is answered. The packet
/// is sent with fragmentation disabled.
bool packet_arrives(const Secret& secret, const Address& to, const Address* source, int bytes);

}  // namespace mccl::cli::probe
