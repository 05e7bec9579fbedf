// The addresses at which a rank listens, and the addresses that it publishes.
#pragma once

#include <cstddef>
#include <vector>

#include "base/log.h"
#include "mccl/config.h"
#include "rendezvous/connections/candidates.h"

namespace mccl::rendezvous {

struct BoundListeners {
  std::vector<Listener> listeners;
  Endpoint endpoint;
};

/// Listens at every address of this host, or only at its IPv4 addresses if it has no IPv6. Throws
/// BindError if the system refuses, for example because the port is taken.
Listener listen_everywhere(std::uint16_t port, std::size_t buffer_bytes);

/// Hosts on which the other ranks of the job may run: any host, or only this one.
enum class Reach { any_host, this_host };

/// Listens on the host's `interfaces` as the settings port_base, listen_addr and ifname specify. If
/// listen_addr and ifname are empty, listens on all addresses, or only on loopback if all ranks are
/// on this host. Blocks while names are resolved. Throws InvalidArgument if it cannot listen or no
/// address is usable; the message contains the setting to change.
BoundListeners bind_listeners(const Config& config, int rank, Reach reach,
                              const Interfaces& interfaces, const Log& log);

}  // namespace mccl::rendezvous
