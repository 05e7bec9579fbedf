// Where hosts stand in a picture of what joins them.
#pragma once

#include <span>
#include <vector>

#include "cluster/links.h"

namespace mccl::cluster {

struct Point {
  double x = 0;
  double y = 0;
};

inline constexpr double kHostWidth = 140;
inline constexpr double kHostHeight = 46;

/// What is written at a cable: at either end, and in its middle. In the picture's own units.
struct Writing {
  double end_width = 0;
  double middle_width = 0;
};

struct Layout {
  std::vector<Point> hosts;  ///< Middles of their boxes, by host.
  Point middle;              ///< Of all; networks stand here.
};

/// `order` has every host once. Two hosts stand side by side; a large ring, of which nothing else
/// is told, in rows that it runs through; all others around a circle in the order given. `stretch`
/// of more than 1 gives what is written more room.
Layout lay_out(const Joined& joined, std::span<const int> order, const Writing& writing,
               double stretch);

}  // namespace mccl::cluster
