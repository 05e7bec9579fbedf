// Draws the connections between hosts.
#pragma once

#include <span>
#include <string>

#include "cluster/links.h"

namespace mccl::cluster {

/// Returns a graph in Graphviz's DOT language, for `dot -Tsvg`. It selects the circo layout, which
/// suits rings.
std::string dot_of(const Joined& joined, std::span<const HostFacts> hosts);

}  // namespace mccl::cluster
