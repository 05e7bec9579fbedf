// Pictures of what joins hosts.
#pragma once

#include <span>
#include <string>

#include "cluster/links.h"

namespace mccl::cluster {

/// A graph for Graphviz, which names the layout that suits rings: `dot -Tsvg`.
std::string dot_of(const Joined& joined, std::span<const HostFacts> hosts);

}  // namespace mccl::cluster
