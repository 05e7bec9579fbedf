// A network of its own for every cable.
#pragma once

#include <optional>
#include <span>
#include <string>
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

/// Where the networks of cables may lie.
struct SubnetChoice {
  /// Facts of further machines whose addresses are left alone, such as the one that asks the hosts.
  std::span<const HostFacts> others = {};
  std::optional<Network> within = {};  ///< Absent: the private ranges.
};

/// Keeps the addresses that the ends of a link already have, where they are of one network that no
/// other interface of either host has. Any other link gets the first free /30 within the choice:
/// 192.168.0.0/16, then 172.16.0.0/12, then 10.0.0.0/8 by default. A network is free if it overlaps
/// no address, no route and nothing in use on any host. An address in use whose network is not
/// known counts as a /24, since addresses near it are probably taken as well. Throws Error when
/// nothing is free.
std::vector<Addressed> give_addresses(std::span<const HostFacts> hosts, std::span<const Link> links,
                                      const SubnetChoice& choice = {});

/// Why networks of cables cannot lie in the text's network; empty if they can.
std::string fault_of_subnet(const std::string& text);

}  // namespace mccl::cluster
