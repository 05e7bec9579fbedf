// Chooses the cables or networks and the backend of a cluster, and the order and addresses of its
// hosts in the hostfile.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "cluster/links.h"
#include "cluster/subnets.h"

namespace mccl::cluster {

enum class Topology {
  ring,     ///< Cables form a ring through all hosts, in the order of TopologyChoice::order.
  mesh,     ///< A cable joins every pair of hosts.
  any,      ///< Cables join all hosts, but form no ring. MCCL can use them; MLX's backends cannot.
  network,  ///< All hosts share one or several networks.
  none,     ///< No usable connection was found.
};

struct TopologyChoice {
  Topology shape = Topology::none;
  std::string backend;     ///< Backend for the hostfile; empty if no backend fits.
  std::vector<int> order;  ///< Host indices in the order of the hostfile.
  std::vector<CableLink> links;
  std::vector<Wire> networks;
  Findings findings;
};

/// Chooses among cables. `backend` is ring, jaccl or jaccl-ring if the user requested that backend,
/// and empty otherwise. If the cables do not suit that backend, the shape is none and findings give
/// the reason, such as cables that are missing.
TopologyChoice choose_cables(Hosts hosts, Links links, const std::string& backend);

/// Returns one address of each host in the network, keyed by host index. All are of the family that
/// more hosts have, IPv4 if in doubt. Omits hosts without an address of that family.
std::map<int, std::string> addresses_in(Hosts hosts, const Wire& wire);

/// Chooses the best network in which all hosts have an address, and all networks that are equally
/// good. The medium decides first, in the order of InterfaceKind, and then the rate. If there is no
/// such network, the shape is none, even if cables join the hosts.
TopologyChoice choose_networks(Hosts hosts, const Connectivity& joined);

/// One entry of the hostfile, which `mccl launch` and MLX read.
struct HostfileEntry {
  int host = 0;
  std::vector<std::string> ips;
  /// One item per host, in the order of the hostfile: the RDMA device that leads to that host, a
  /// list of such devices, or null. Empty unless the backend is jaccl or jaccl-ring.
  nlohmann::json rdma = nlohmann::json::array();
};

/// Builds the entries of the hostfile, in the order of `choice.order`. `side` holds, for each host,
/// an address on an interface for which no cable was found, or an empty string. The jaccl backends
/// set up their connections over these addresses.
std::vector<HostfileEntry> entries_of(Hosts hosts, const TopologyChoice& choice,
                                      std::span<const Addressed> links,
                                      std::span<const std::string> side);

}  // namespace mccl::cluster
