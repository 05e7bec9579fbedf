// What a cluster's cables are good for, and the order and addresses of its hosts in a hostfile.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cluster/links.h"
#include "cluster/subnets.h"

namespace mccl::cluster {

enum class Shape {
  ring,     ///< Through all hosts, by `order`.
  mesh,     ///< Every pair is joined.
  any,      ///< Joined somehow: enough for MCCL, and for none of MLX's own backends.
  network,  ///< All hosts are in one network, or several.
  none,
};

struct Choice {
  Shape shape = Shape::none;
  std::string backend;      ///< For the hostfile; empty: none fits.
  std::vector<int> order;   ///< Of the hosts in the hostfile.
  std::vector<Link> links;  ///< Those that are used.
  std::vector<Wire> networks;
  std::vector<Finding> findings;
};

/// `backend` is ring, jaccl or jaccl-ring where one is asked for, else empty. Where the cables do
/// not make what it needs, the shape is none, and the findings say which cables would.
Choice choose_cables(std::span<const HostFacts> hosts, std::span<const Link> links,
                     const std::string& backend);

/// The address of each host in a network, by number of the host: of IPv4, or of IPv6 where more
/// hosts have one. Hosts without an address of that family are missing.
std::map<int, std::string> addresses_in(std::span<const HostFacts> hosts, const Wire& wire);

/// The networks that all hosts are in and have addresses of: the fastest, and those as fast. The
/// shape is none where there is none; then cables may do.
Choice choose_networks(std::span<const HostFacts> hosts, const Joined& joined);

/// A host of the hostfile: what `mccl launch` and MLX read.
struct Entry {
  int host = 0;
  std::vector<std::string> ips;
  nlohmann::json rdma = nlohmann::json::array();  ///< By entry of the file; empty: none.
};

/// `side` are the addresses at which hosts reach each other apart from their cables, for backends
/// that meet there; by host, empty where there is none.
std::vector<Entry> entries_of(std::span<const HostFacts> hosts, const Choice& choice,
                              std::span<const Addressed> links, std::span<const std::string> side);

}  // namespace mccl::cluster
