// Where a rank listens, and which addresses it publishes.
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

/// Where the other ranks are.
enum class Reach { any_host, this_host };

/// Listens as the settings say (port_base, listen_addr, ifname) among the host's `interfaces`;
/// where they say nothing, at all addresses, or, when nobody comes from another host, at loopback's
/// alone. Blocks while names are resolved. Throws InvalidArgument with what to set.
Binding bind_listeners(const Config& config, int rank, Reach reach,
                       const std::vector<transport::tcp::Interface>& interfaces, const Log& log);

}  // namespace mccl::rendezvous
