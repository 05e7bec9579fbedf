// Listening addresses for the ranks of a test: one loopback address with a free port per rank.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <string>

#include "rendezvous/cabling/hostfile.h"
#include "transport/tcp/listener.h"

namespace mccl::support {

/// Returns `size` addresses whose ports lie below the ephemeral range. An ephemeral port could be
/// taken again, for example by an outgoing connection, before its rank listens there. Each process
/// starts in a port range of its own, which the Python tests do not use
/// (tests/python/free_port.py).
inline rendezvous::AddressTable free_places(int size) {
  static int next = 10'000 + ::getpid() % 45 * 200;
  rendezvous::AddressTable table;
  while (static_cast<int>(table.size()) < size) {
    const int port = next++;
    try {
      transport::tcp::Listener(
          transport::tcp::Address::wildcard(AF_INET6, static_cast<std::uint16_t>(port)), 0);
    } catch (const transport::tcp::BindError&) {
      continue;
    }
    table.push_back(
        {{"127.0.0." + std::to_string(table.size() + 1), static_cast<std::uint16_t>(port)}});
  }
  return table;
}

}  // namespace mccl::support
