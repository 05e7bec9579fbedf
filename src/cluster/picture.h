// Pictures of what joins hosts.
#pragma once

#include <span>
#include <string>

#include "cluster/links.h"

namespace mccl::cluster {

/// For Graphviz: dot -Tpng, or neato.
std::string dot_of(const Joined& joined, std::span<const HostFacts> hosts);

/// Laid out here, in the order given; networks are in the middle, and every cable has its speed in
/// its middle and its interface at each end. Nothing that is written lies on anything else: the
/// picture grows until there is room, and says so where there is none.
std::string svg_of(const Joined& joined, std::span<const HostFacts> hosts,
                   std::span<const int> order);

}  // namespace mccl::cluster
