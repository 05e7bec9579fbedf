// Assigns a separate network to every cable.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cluster/links.h"
#include "cluster/network.h"

namespace mccl::cluster {

/// A link with the address of each end.
struct Addressed {
  CableLink link;
  Network a;
  Network b;
  bool keeps = false;  ///< True if both ends already have these addresses.

  const Network& of(int host) const { return link.a.host == host ? a : b; }
};

/// Options of give_addresses().
struct SubnetChoice {
  /// Facts of further machines whose addresses must not be used, such as the one that runs mccl.
  Hosts others = {};
  std::optional<Network> within = {};  ///< Range for new networks; if empty, the private ranges.
};

/// Returns each link with its addresses. A link keeps its present addresses if they are in one
/// network that no other interface of either host is in. Any other link gets the first free /30
/// network in `choice.within`. By default, that is 192.168.0.0/16, then 172.16.0.0/12, then
/// 10.0.0.0/8. A network is free if it overlaps no address, no route and no entry of
/// HostFacts::in_use of any host. An address in use whose network is unknown counts as a /24, since
/// nearby addresses are probably taken as well. Throws Error if no network is free.
std::vector<Addressed> give_addresses(Hosts hosts, Links links, const SubnetChoice& choice = {});

/// Returns the reason why cables cannot get networks within the network `text`; empty if they can.
std::string fault_of_subnet(const std::string& text);

}  // namespace mccl::cluster
