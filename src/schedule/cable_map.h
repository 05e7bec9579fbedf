// What the cabling of a job means for one group: along which ranks its data can go so that each
// message takes one cable, and how busy the cables get where it cannot.
#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "base/cabling.h"

namespace mccl::schedule {

/// Bytes by (sender, receiver).
using Traffic = std::map<std::pair<int, int>, double>;

/// Ranks are the group's. Equal on all of them.
class CableMap {
 public:
  /// `members`: the job's rank of each of the group's. A cable without figures counts as one of the
  /// given latency and rate.
  CableMap(const Cabling& cabling, std::vector<int> members, double latency_s, double bytes_per_s);

  int size() const { return static_cast<int>(members_.size()); }
  bool joins(int a, int b) const { return cabling_.joins(member(a), member(b)); }

  /// An order in which each rank is joined to the next, and the last to the first: the one whose
  /// slowest cable is fastest, of those that were found. Empty when there is none.
  const std::vector<int>& ring() const { return ring_; }
  /// Of each rank the one above it, -1 for one: a tree of as fast cables as join all members, and
  /// among those one of few levels. Empty when the members' own cables do not join them.
  const std::vector<int>& tree() const { return tree_; }

  /// Of the messages of a pair: one way, and the cables that one takes.
  double latency_s(int from, int to) const;
  /// Until the busiest cable has carried its part, all at once.
  double seconds(const Traffic& traffic) const;
  double fastest_bytes_per_s() const { return fastest_; }

 private:
  /// What joins two ranks directly: all their cables together.
  struct Joint {
    double latency_s = 0;
    double bytes_per_s = 0;
    std::vector<std::pair<std::size_t, double>> cables;  ///< And the part of a message on each.
  };

  int member(int rank) const { return members_[static_cast<std::size_t>(rank)]; }
  double rate(int a, int b) const;
  std::vector<double> rates() const;
  void find_ring();
  void find_tree();
  std::vector<int> tree_over(double least_rate) const;

  Cabling cabling_;
  std::vector<int> members_;
  std::map<std::pair<int, int>, Joint> joints_;  ///< By ranks of the job, the lower one first.
  std::vector<double> cable_rates_;              ///< Of each different cable.
  double fastest_ = 0;
  std::vector<int> ring_;
  std::vector<int> tree_;
};

}  // namespace mccl::schedule
