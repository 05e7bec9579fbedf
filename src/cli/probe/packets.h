// The size of packets that arrive.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include "cli/probe/datagrams.h"
#include "cli/probe/secret.h"

namespace mccl::cli::probe {

/// Answers each packet that proves to know the key, in fewer bytes, until it is destroyed.
class PacketEcho {
 public:
  explicit PacketEcho(const Secret& secret);
  ~PacketEcho();
  PacketEcho(const PacketEcho&) = delete;
  PacketEcho& operator=(const PacketEcho&) = delete;

  /// 0 where the system has given no socket.
  std::uint16_t port() const { return port_; }

 private:
  void run();

  const Secret& secret_;
  Socket socket_;
  std::uint16_t port_ = 0;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

/// Whether a packet of so many bytes, the headers of IP and UDP among them, is answered. Nothing on
/// the way may cut it in pieces.
bool packet_arrives(const Secret& secret, const Address& to, const Address* source, int bytes);

}  // namespace mccl::cli::probe
