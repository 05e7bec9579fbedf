// Tests which sizes of packets arrive.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include "cli/probe/datagrams.h"
#include "cli/probe/secret.h"

namespace mccl::cli::probe {

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
