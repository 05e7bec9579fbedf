// A cycle through all vertices of a graph: found, or proved not to be there.
#pragma once

#include <cstddef>
#include <vector>

#include "cluster/vertices.h"

namespace mccl::cluster {

/// By vertex: its neighbours.
using Graph = std::vector<Vertices>;

struct Cycle {
  std::vector<int> order;  ///< Empty when none was found.
  bool proved = true;      ///< Found, or there is none; else the search was given up.
};

/// How many vertices can each be given a neighbour to go on to, no two the same one. Of vertices
/// that paths cover, all but the last of each path have one.
int most_steps(const Graph& graph);

/// Of a graph with three vertices or more. Always the same for the same graph.
Cycle find_cycle(const Graph& graph);

}  // namespace mccl::cluster
