// Where ranks of a test listen: loopback addresses, one for each, with ports that are free.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <string>

#include "rendezvous/cabling/hostfile.h"
#include "transport/tcp/listener.h"

namespace mccl::support {

/// The ports lie below those that systems give to whoever asks for none, such as a dial: one of
/// those could be taken again before its rank listens there. Each process begins in a range of its
/// own, clear of that of the tests in Python (tests/python/free_port.py).
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
