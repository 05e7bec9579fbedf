// Single packets: what size of them arrives, and who calls through a cable.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

#include "cli/probe/answers.h"
#include "transport/tcp/socket.h"

namespace mccl::cli::probe {

using transport::tcp::Address;
using transport::tcp::Socket;

/// Where hosts call to each other through their cables: those need no addresses of their own for
/// that, and nobody has told the other's port yet.
inline constexpr std::uint16_t kCallPort = 29599;

/// Sends back the head of each packet that has the key, and tells of calls: "heard INTERFACE NAME
/// INTERFACE-THERE". Until it is destroyed.
class PacketEcho {
 public:
  PacketEcho(std::string key, Answers& answers);
  ~PacketEcho();
  PacketEcho(const PacketEcho&) = delete;
  PacketEcho& operator=(const PacketEcho&) = delete;

  /// 0 where the system has given no socket.
  std::uint16_t port() const { return port_; }

 private:
  void run();
  void take(const Socket& socket, bool calls);

  const std::string key_;
  Answers& answers_;
  Socket echo_;
  Socket calls_;
  std::uint16_t port_ = 0;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

/// Whether a packet of so many bytes, the headers of IP and UDP among them, comes back. Nothing on
/// the way may cut it in pieces.
bool packet_arrives(const std::string& key, const Address& to, const Address* source, int bytes);

/// Calls through every interface that is up and has a link-local address, to whoever is at the
/// other end. Waits up to 2.5 s for interfaces that have only just come up.
void call(const std::string& key, const std::string& name);

}  // namespace mccl::cli::probe
