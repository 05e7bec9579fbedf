// Searches for rings and meshes among hosts with cables between them.
#pragma once

#include <utility>
#include <vector>

namespace mccl::cluster {

/// The capacity of each pair of hosts, in Mbit/s; 0 if no cable joins them.
class Capacities {
 public:
  explicit Capacities(int size) : size_(size), values_(place(size, 0), 0) {}

  int size() const { return size_; }
  double between(int a, int b) const { return values_[place(a, b)]; }
  /// Adds `mbit` to the capacity of the pair, in both directions.
  void add(int a, int b, double mbit) {
    values_[place(a, b)] += mbit;
    values_[place(b, a)] += mbit;
  }

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
/// Number of steps after which a search gives up.
inline constexpr int kMostRingSteps = 200'000;

struct RingAnswer {
  /// The hosts in the order of the ring; empty if no ring was found. A single host, or two hosts
  /// with a cable between them, count as a ring.
  std::vector<int> order;
  double slowest = 0;  ///< Capacity of the ring's slowest pair of neighbours, in Mbit/s.
  /// True if the search was complete: no ring has a faster slowest pair or, if `order` is empty, no
  /// ring exists. False if a search gave up.
  bool proved = true;
  /// If there is no ring: the pairs of hosts between which new cables would complete a ring.
  std::vector<Pair> missing;
  /// True if the search for `missing` was complete, so that fewer cables cannot suffice.
  bool fewest = true;
};

/// Finds the ring whose slowest pair is fastest. Deterministic. Throws InvalidArgument for more
/// than kMostRingHosts hosts.
RingAnswer best_ring(const Capacities& capacities);

/// Returns the pairs that no cable joins.
std::vector<Pair> missing_of_mesh(const Capacities& capacities);

}  // namespace mccl::cluster
