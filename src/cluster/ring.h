// Rings and meshes among hosts that cables join.
#pragma once

#include <utility>
#include <vector>

namespace mccl::cluster {

/// What each pair of hosts can carry, in Mbit/s; 0 where no cable joins them.
class Capacities {
 public:
  explicit Capacities(int size) : size_(size), values_(place(size, 0), 0) {}

  int size() const { return size_; }
  double between(int a, int b) const { return values_[place(a, b)]; }
  void add(int a, int b, double mbit);

 private:
  std::size_t place(int a, int b) const {
    return static_cast<std::size_t>(a) * static_cast<std::size_t>(size_) +
           static_cast<std::size_t>(b);
  }

  int size_;
  std::vector<double> values_;
};

using Pair = std::pair<int, int>;

inline constexpr int kMostRingHosts = 128;
/// After so many steps a search gives up.
inline constexpr int kMostRingSteps = 200'000;

struct RingAnswer {
  /// The hosts in the order of the ring; empty when there is none. Two hosts that a cable joins are
  /// a ring, and so is one host.
  std::vector<int> order;
  double slowest = 0;  ///< The capacity of its slowest pair: no other ring has a better one.
  /// Whether that is proved: that no ring is better, or that there is none. Else the search was
  /// given up.
  bool proved = true;
  /// Where there is no ring: pairs that are not joined, whose cables would make one.
  std::vector<Pair> missing;
  /// Whether it is proved that no fewer would do.
  bool fewest = true;
};

/// Throws InvalidArgument for more hosts than kMostRingHosts. The same for the same capacities.
RingAnswer best_ring(const Capacities& capacities);

/// Pairs that no cable joins.
std::vector<Pair> missing_of_mesh(const Capacities& capacities);

}  // namespace mccl::cluster
