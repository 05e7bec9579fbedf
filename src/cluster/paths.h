// Paths from an address of one host to an address of another host, and the results of testing them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cluster/host_facts.h"
#include "cluster/links.h"

namespace mccl::cluster {

/// A path in one direction: from an interface to an interface of another host. A routed path starts
/// at a host, not at a particular interface.
struct InterfacePath {
  End from;
  End to;
  std::string source = {};  ///< IPv4 or IPv6 address; empty if routed.
  std::string target;
  int nominal_mbit = 0;  ///< Rate of the slower end, in Mbit/s; 0 if unknown.
  int mtu = 0;           ///< The smaller MTU of the two ends, in bytes; 0 if unknown.
  bool routed = false;   ///< True if the host's routes select the interface and the source address.

  bool tried = false;
  /// One text per port to which a connection was tried: the error, or an empty text if the
  /// connection succeeded.
  std::vector<std::string> faults = {};
  /// Size of the largest test packet that arrived, in bytes; 0 if no packet arrived or was sent.
  int packet = 0;
  bool measured = false;   ///< True if latency and rate were measured.
  double latency_s = 0;    ///< 0 if unknown.
  double bytes_per_s = 0;  ///< 0 if unknown.

  /// True if a connection to at least one port succeeded.
  bool good() const;
  /// True if every connection that was tried succeeded, or if none was tried.
  bool all_ports_good() const;
  /// True if small packets arrived, but packets of the full size of the MTU were lost.
  bool loses_packets() const { return packet > 0 && packet < mtu; }
  bool is_ipv6() const { return target.find(':') != std::string::npos; }
};

using Paths = std::span<const InterfacePath>;

/// Returns the paths to try between all hosts. Two addresses of different hosts in a common network
/// give one path per direction. A host that has no network in common with another host gets a
/// routed path to each address of that host.
std::vector<InterfacePath> paths_of(Hosts hosts);

/// Returns one value per path: true if the measured rate is much lower than the hardware's rate or,
/// for an unrouted path whose hardware reports no rate, than the median rate of all such paths.
std::vector<bool> slow_ones(Paths paths);

/// Returns a table with one line per path, for people. If there are very many paths, shows only
/// paths with a fault, and the number of the other paths.
std::string table_of(Paths paths, Hosts hosts);

}  // namespace mccl::cluster
