// The addresses at which a rank listens, and those that it publishes.
#pragma once

#include <cstddef>
#include <vector>

#include "base/log.h"
#include "mccl/config.h"
#include "rendezvous/endpoint.h"
#include "transport/tcp/interfaces.h"
#include "transport/tcp/listener.h"

namespace mccl::rendezvous {

struct Binding {
  std::vector<transport::tcp::Listener> listeners;
  Endpoint endpoint;
};

/// Where the other ranks of the job run.
enum class Reach { any_host, this_host };

/// Listens as the settings say (port_base, listen_addr, ifname) on the host's `interfaces`. Without
/// such settings it listens on all addresses, or only on loopback if all ranks are on this host.
/// Blocks while names are resolved. Throws InvalidArgument that says what to set.
Binding bind_listeners(const Config& config, int rank, Reach reach,
                       const std::vector<transport::tcp::Interface>& interfaces, const Log& log);

}  // namespace mccl::rendezvous
