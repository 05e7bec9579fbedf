// A network of its own for every cable.
#pragma once

#include <span>
#include <vector>

#include "cluster/host_facts.h"
#include "cluster/links.h"
#include "cluster/network.h"

namespace mccl::cluster {

/// A link with the addresses of its ends.
struct Addressed {
  Link link;
  Network a;
  Network b;
  bool keeps = false;  ///< Both ends have these already.

  const Network& of(int host) const { return link.a.host == host ? a : b; }
};

/// Addresses that ends already have, where they are of one network that no other interface of
/// either host has; else the first free pair of a /30 of 192.168.0.0/16, 172.16.0.0/12 or
/// 10.0.0.0/8, which overlaps nothing that any of the hosts uses or has a route to. Throws Error
/// when nothing is free.
std::vector<Addressed> give_addresses(std::span<const HostFacts> hosts,
                                      std::span<const Link> links);

}  // namespace mccl::cluster
