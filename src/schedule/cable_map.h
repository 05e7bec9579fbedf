// Describes the cabling of a job for one group: a ring and a tree in which each message takes one
// cable, and the cables that a message between any two ranks occupies.
#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "base/cabling.h"

namespace mccl::schedule {

/// The cabling of a job as seen by one group. Methods take ranks of the group. All ranks of the
/// group compute the same map.
class CableMap {
 public:
  /// `members`: the rank in the job of each rank of the group. A cable that was not measured gets
  /// the given latency and rate.
  CableMap(const Cabling& cabling, std::vector<int> members, double latency_s, double bytes_per_s);

  int size() const { return static_cast<int>(members_.size()); }
  bool joins(int a, int b) const { return cabling_.joins(member(a), member(b)); }

  /// An order of the ranks in which a cable joins each rank to the next, and the last to the first.
  /// The slowest cable of the ring is as fast as possible, but rates that differ by at most a
  /// quarter count as equal. Empty if no ring was found.
  const std::vector<int>& ring() const { return ring_; }
  /// The parent of each rank in a tree of cables, or -1 for the root. The tree uses the fastest
  /// cables that connect all members and, among those, has the fewest levels. Empty if the members'
  /// own cables do not connect them.
  const std::vector<int>& tree() const { return tree_; }

  /// The route of a message along the cables.
  struct Way {
    double latency_s = 0;  ///< Sum of the latencies of all cables on the route.
    /// Index of each cable direction on the route (see directions()), and the seconds for which a
    /// byte of the message occupies it.
    std::vector<std::pair<std::size_t, double>> directions;
  };
  Way way(int from, int to) const;
  /// Number of cable directions: two per cable.
  std::size_t directions() const { return 2 * cable_rates_.size(); }

 private:
  /// All cables that join one pair of ranks directly.
  struct Joint {
    double latency_s = 0;
    double bytes_per_s = 0;
    /// Index into `cable_rates_`, and the fraction of a message that this cable carries.
    std::vector<std::pair<std::size_t, double>> cables;
  };

  int member(int rank) const { return members_[static_cast<std::size_t>(rank)]; }
  double rate(int a, int b) const;
  std::vector<double> rates() const;
  void find_ring();
  void find_tree();
  std::vector<int> tree_over(double least_rate) const;

  Cabling cabling_;
  std::vector<int> members_;
  /// The cables of each pair of ranks of the job, keyed by the pair, the lower rank first.
  std::map<std::pair<int, int>, Joint> joints_;
  std::vector<double> cable_rates_;  ///< Bytes per second of each distinct cable.
  std::vector<int> ring_;
  std::vector<int> tree_;
};

}  // namespace mccl::schedule
