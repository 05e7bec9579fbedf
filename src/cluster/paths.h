// Ways from an address of one host to an address of another, and what became of trying them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cluster/finding.h"
#include "cluster/host_facts.h"
#include "cluster/links.h"

namespace mccl::cluster {

/// One direction between two interfaces.
struct Path {
  End from;
  End to;
  std::string source;  ///< Address of IPv4 or IPv6; empty where it is routed.
  std::string target;
  int nominal_mbit = 0;  ///< Of the slower end; 0: not known.
  int mtu = 0;           ///< Of the smaller end; 0: not known.
  bool routed = false;   ///< From no interface in particular, and no source.

  bool tried = false;
  /// By port that was tried: why it failed; empty text where it did not.
  std::vector<std::string> faults;
  /// The largest packet that arrived, of those tried; 0 where none did, or none was sent.
  int packet = 0;
  bool measured = false;  ///< Latency and rate; 0 where that failed.
  double latency_s = 0;
  double bytes_per_s = 0;

  bool good() const;
  bool is_ipv6() const { return target.find(':') != std::string::npos; }
};

/// Both directions of every pair of interfaces of different hosts that are of one network; of hosts
/// that have none in common, to every address of the other, by routing.
std::vector<Path> paths_of(std::span<const HostFacts> hosts);

/// By path: whether it carries much less than its hardware, or the others of its kind.
std::vector<bool> slow_ones(std::span<const Path> paths);

/// What is wrong with them.
std::vector<Finding> check_paths(std::span<const HostFacts> hosts, std::span<const Path> paths,
                                 const Joined& joined);

/// What is wrong with how cables and addresses fit together, whether or not anything was tried.
std::vector<Finding> check_addressing(std::span<const HostFacts> hosts, const Joined& joined);

/// For people: a line each; of very many only those that are not as they should be, and how many
/// others there are.
std::string table_of(std::span<const Path> paths, std::span<const HostFacts> hosts);

}  // namespace mccl::cluster
