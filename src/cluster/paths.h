// Paths from an address of one host to an address of another, and the results of trying them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cluster/finding.h"
#include "cluster/host_facts.h"
#include "cluster/links.h"

namespace mccl::cluster {

/// One direction between two interfaces, or from a host to an interface if it is routed.
struct Path {
  End from;
  End to;
  std::string source;  ///< IPv4 or IPv6 address; empty if routed.
  std::string target;
  int nominal_mbit = 0;  ///< Rate of the slower end; 0 if unknown.
  int mtu = 0;           ///< The smaller of both MTUs; 0 if unknown.
  bool routed = false;   ///< Routing picks the interface and the source address.

  bool tried = false;
  /// The error of each port that was tried; empty text if it connected.
  std::vector<std::string> faults;
  /// Bytes of the largest test packet that arrived; 0 if none did or none was sent.
  int packet = 0;
  bool measured = false;   ///< Latency and rate were measured.
  double latency_s = 0;    ///< 0 if unknown.
  double bytes_per_s = 0;  ///< 0 if unknown.

  /// True if at least one port connected.
  bool good() const;
  bool is_ipv6() const { return target.find(':') != std::string::npos; }
};

/// Returns both directions between any two interfaces of different hosts that have addresses in a
/// common network. For hosts without a common network, returns a routed path to each address.
std::vector<Path> paths_of(std::span<const HostFacts> hosts);

/// Returns, for each path, whether its rate is much lower than its hardware's or than that of the
/// other paths of its kind.
std::vector<bool> slow_ones(std::span<const Path> paths);

/// Finds faults in the results of the paths, and hosts that no path joins.
std::vector<Finding> check_paths(std::span<const HostFacts> hosts, std::span<const Path> paths,
                                 const Joined& joined);

/// Finds cables, addresses and MTUs that do not match. Needs no results of paths.
std::vector<Finding> check_addressing(std::span<const HostFacts> hosts, const Joined& joined);

/// Returns a table with one line per path, for people. If there are very many, shows only paths
/// with a fault and the number of paths left out.
std::string table_of(std::span<const Path> paths, std::span<const HostFacts> hosts);

}  // namespace mccl::cluster
