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

/// How much may be tried, of all searches together: about a second's worth.
class Patience {
 public:
  /// For one more search, which gets half of what is left; the searches after it want some, too.
  explicit Patience(double left = 2e7) : left_(left) {}
  Patience share() const { return Patience(left_ / 2); }
  void take(const Patience& used_up_to, const Patience& given) {
    left_ -= given.left_ - used_up_to.left_;
  }
  /// One more edge of a graph of so many vertices is tried both ways; false when that is too much.
  bool allows(std::size_t vertices) {
    left_ -= static_cast<double>(vertices * vertices);
    return left_ > 0;
  }

 private:
  double left_;
};

/// Of a graph with three vertices or more. Always the same for the same graph and patience.
Cycle find_cycle(const Graph& graph, Patience& patience);

}  // namespace mccl::cluster
