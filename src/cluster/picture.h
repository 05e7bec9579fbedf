// Pictures of what joins hosts.
#pragma once

#include <span>
#include <string>

#include "cluster/links.h"

namespace mccl::cluster {

/// For Graphviz: dot -Tpng, or neato.
std::string dot_of(const Joined& joined, std::span<const HostFacts> hosts);

/// Laid out here: the hosts around a circle in the order given, networks in its middle, every cable
/// with its speed in the middle and its interface at each end.
std::string svg_of(const Joined& joined, std::span<const HostFacts> hosts,
                   std::span<const int> order);

}  // namespace mccl::cluster
