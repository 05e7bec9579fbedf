// Cabling: which ranks are joined directly, and the paths between those that are not. A cable is
// any direct connection of two ranks: a wire, a path through a network switch, or loopback.
#pragma once

#include <string>
#include <vector>

namespace mccl {

struct Cable {
  int a = 0;  ///< The lower rank.
  int b = 0;
  /// Addresses of the two ends, to connect to and to show in messages; may be empty.
  std::string at_a;
  std::string at_b;
  double latency_s = 0;    ///< One-way latency; 0 if not measured.
  double bytes_per_s = 0;  ///< Bandwidth in each direction; 0 if not measured.

  friend bool operator==(const Cable&, const Cable&) = default;
};

/// Describes a cable: "the cable between rank 1 (10.0.12.1) and rank 2 (10.0.12.2)". Omits empty
/// addresses.
std::string text_of(const Cable& cable);

/// The cables of a job. They are equal on all ranks, and so are the paths derived from them.
class Cabling {
 public:
  /// Makes a cabling in which every rank is joined to every other.
  Cabling() = default;
  /// Makes the cabling of `size` ranks. Throws InvalidArgument if a cable does not join two
  /// different ranks below `size`.
  Cabling(int size, std::vector<Cable> cables);

  int size() const { return size_; }
  const std::vector<Cable>& cables() const { return cables_; }
  /// The cables between two ranks, in an order that is equal on both ranks.
  std::vector<Cable> between(int a, int b) const;

  bool joins(int a, int b) const { return a != b && distance(a, b) == 1; }
  /// True if every pair of ranks is joined, and some rank has an address at which cables to several
  /// other ranks end. These cables share the hardware behind the address, as on a network switch,
  /// so none is exclusive to two ranks. With fewer than 3 ranks, true if every pair is joined.
  bool is_one_network() const { return complete_ && (size_ < 3 || shares_an_end()); }
  /// Number of cables on a shortest path; -1 if there is no path.
  int distance(int from, int to) const;
  /// The rank after `from` on the path to `to`. If several paths are shortest, all ranks choose the
  /// same one. -1 if there is no path.
  int next(int from, int to) const;
  /// All ranks of the path from `from` to `to`, including both ends; empty if there is no path.
  std::vector<int> way(int from, int to) const;

  /// Sets of ranks that can reach each other, the largest set first. A single set if all ranks can
  /// reach each other.
  std::vector<std::vector<int>> parts() const;

 private:
  bool shares_an_end() const;
  void find_distances();

  int size_ = 0;
  bool complete_ = true;  ///< True if every pair of ranks is joined directly.
  std::vector<Cable> cables_;
  std::vector<int> distances_;  ///< Indexed by from * size + to.
};

}  // namespace mccl
