// Cabling: which ranks are joined directly, and the ways between those that are not. A cable is
// whatever joins two ranks directly: a wire, a switch between them, loopback.
#pragma once

#include <string>
#include <vector>

namespace mccl {

struct Cable {
  int a = 0;  ///< The lower rank.
  int b = 0;
  /// The addresses of the two ends, for people and to connect to.
  std::string at_a;
  std::string at_b;
  double latency_s = 0;    ///< One way; 0: not measured.
  double bytes_per_s = 0;  ///< Each way; 0: not measured.

  friend bool operator==(const Cable&, const Cable&) = default;
};

/// "the cable between rank 1 (10.0.12.1) and rank 2 (10.0.12.2)".
std::string text_of(const Cable& cable);

/// Equal on all ranks of a job, and so are the ways that follow from it.
class Cabling {
 public:
  /// Every rank reaches every other.
  Cabling() = default;
  /// Throws InvalidArgument for a cable whose ends are no two different ranks of `size`.
  Cabling(int size, std::vector<Cable> cables);

  int size() const { return size_; }
  const std::vector<Cable>& cables() const { return cables_; }
  /// The cables of a pair, in the order that both ends see.
  std::vector<Cable> between(int a, int b) const;

  bool joins(int a, int b) const { return a != b && distance(a, b) == 1; }
  /// Whether every pair is joined directly.
  bool is_complete() const { return complete_; }
  /// Whether besides some rank has cables to several others at one address: then they share what
  /// lies behind it, as on a switch, and no cable is any rank's own.
  bool is_one_network() const { return complete_ && (size_ < 3 || shares_an_end()); }
  /// Cables on the shortest way; -1 when there is none.
  int distance(int from, int to) const;
  /// The rank after `from` on the way to `to`: of the shortest ways one that all ranks agree on.
  /// -1 when there is none.
  int next(int from, int to) const;
  /// All ranks of the way, both ends included; empty when there is none.
  std::vector<int> way(int from, int to) const;

  /// The ranks that can reach each other, largest part first. One part when all can.
  std::vector<std::vector<int>> parts() const;

 private:
  bool shares_an_end() const;
  void find_distances();

  int size_ = 0;
  bool complete_ = true;
  std::vector<Cable> cables_;
  std::vector<int> distances_;  ///< By pair.
};

}  // namespace mccl
