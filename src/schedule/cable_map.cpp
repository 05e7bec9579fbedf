#include "schedule/cable_map.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <tuple>

namespace mccl::schedule {
namespace {

/// Maximum number of steps of a search for a ring. A search that takes more steps finds no ring.
constexpr int kMostSteps = 200'000;
/// Two rates count as equal if the lower one is at least this fraction of the higher one, because
/// measured rates vary.
constexpr double kAlike = 0.75;

/// Searches for a ring in which `joined` holds for each pair of neighbours.
class RingSearch {
 public:
  RingSearch(int size, std::function<bool(int, int)> joined)
      : size_(size), joined_(std::move(joined)), used_(static_cast<std::size_t>(size), false) {}

  std::vector<int> find() {
    ring_ = {0};
    used_[0] = true;
    return extend() ? ring_ : std::vector<int>();
  }

 private:
  /// Tries the next higher rank first, so that a ring of cables in rank order is found immediately.
  bool extend() {
    if (static_cast<int>(ring_.size()) == size_) return joined_(ring_.back(), 0);
    for (int step = 1; step < size_ && steps_ < kMostSteps; ++step, ++steps_) {
      const int next = (ring_.back() + step) % size_;
      if (used_[static_cast<std::size_t>(next)] || !joined_(ring_.back(), next)) continue;
      used_[static_cast<std::size_t>(next)] = true;
      ring_.push_back(next);
      if (extend()) return true;
      ring_.pop_back();
      used_[static_cast<std::size_t>(next)] = false;
    }
    return false;
  }

  int size_;
  std::function<bool(int, int)> joined_;
  std::vector<bool> used_;
  std::vector<int> ring_;
  int steps_ = 0;
};

}  // namespace

CableMap::CableMap(const Cabling& cabling, std::vector<int> members, double latency_s,
                   double bytes_per_s)
    : cabling_(cabling), members_(std::move(members)) {
  // Ranks of one host share its cables, so a cable is identified by the addresses of its two ends.
  std::map<std::pair<std::string, std::string>, std::size_t> known;
  for (const Cable& cable : cabling.cables()) {
    const auto ends = std::minmax(cable.at_a, cable.at_b);
    const bool named = !cable.at_a.empty();
    const double rate = cable.bytes_per_s > 0 ? cable.bytes_per_s : bytes_per_s;
    const auto [place, is_new] =
        named ? known.emplace(std::pair(ends.first, ends.second), cable_rates_.size())
              : std::pair(known.end(), true);
    const std::size_t index = is_new ? cable_rates_.size() : place->second;
    if (is_new) cable_rates_.push_back(rate);
    Joint& joint = joints_[{cable.a, cable.b}];
    const double latency = cable.latency_s > 0 ? cable.latency_s : latency_s;
    joint.latency_s = joint.cables.empty() ? latency : std::min(joint.latency_s, latency);
    joint.bytes_per_s += rate;
    joint.cables.emplace_back(index, rate);
  }
  for (auto& [pair, joint] : joints_) {
    for (auto& [cable, part] : joint.cables) part /= joint.bytes_per_s;
  }
  find_ring();
  find_tree();
}

double CableMap::rate(int a, int b) const {
  const auto joint = joints_.find(std::minmax(member(a), member(b)));
  return joint == joints_.end() ? 0 : joint->second.bytes_per_s;
}

/// Returns the minimum rates of a cable that find_ring() and find_tree() try in turn, the highest
/// first. There is one for each rate between members that a cable joins; rates that count as equal
/// share one.
std::vector<double> CableMap::rates() const {
  std::vector<double> found;
  for (int a = 0; a < size(); ++a) {
    for (int b = a + 1; b < size(); ++b) {
      if (joins(a, b)) found.push_back(rate(a, b));
    }
  }
  std::ranges::sort(found, std::greater());
  std::vector<double> levels;
  for (const double each : found) {
    if (levels.empty() || each < kAlike * levels.back()) {
      levels.push_back(each);
    }
  }
  for (double& level : levels) level *= kAlike;
  return levels;
}

void CableMap::find_ring() {
  if (size() < 3) return;
  for (const double least : rates()) {
    ring_ =
        RingSearch(size(), [&](int a, int b) { return joins(a, b) && rate(a, b) >= least; }).find();
    if (!ring_.empty()) return;
  }
}

void CableMap::find_tree() {
  for (const double least : rates()) {
    tree_ = tree_over(least);
    if (!tree_.empty()) return;
  }
  if (size() == 1) tree_ = {-1};
}

/// Searches breadth first from every rank. The rank with the shallowest tree becomes the root.
std::vector<int> CableMap::tree_over(double least_rate) const {
  std::vector<int> best;
  int fewest = 0;
  for (int root = 0; root < size(); ++root) {
    std::vector<int> parents(members_.size(), -2);
    std::vector<int> levels(members_.size(), 0);
    std::vector<int> reached{root};
    parents[static_cast<std::size_t>(root)] = -1;
    for (std::size_t i = 0; i < reached.size(); ++i) {
      for (int next = 0; next < size(); ++next) {
        auto& parent = parents[static_cast<std::size_t>(next)];
        if (parent != -2 || !joins(reached[i], next) || rate(reached[i], next) < least_rate)
          continue;
        parent = reached[i];
        levels[static_cast<std::size_t>(next)] = levels[static_cast<std::size_t>(reached[i])] + 1;
        reached.push_back(next);
      }
    }
    if (reached.size() != members_.size()) return {};
    const int depth = std::ranges::max(levels);
    if (best.empty() || depth < fewest) std::tie(best, fewest) = std::pair(parents, depth);
  }
  return best;
}

/// The higher rank of a pair makes the connection, and messages in both directions use it. So both
/// directions follow the route from the higher rank to the lower one.
CableMap::Way CableMap::way(int from, int to) const {
  const auto [low, high] = std::minmax({member(from), member(to)});
  std::vector<int> route = cabling_.way(high, low);
  if (route.front() != member(from)) std::ranges::reverse(route);
  Way way;
  for (std::size_t i = 0; i + 1 < route.size(); ++i) {
    const Joint& joint = joints_.at(std::minmax(route[i], route[i + 1]));
    way.latency_s += joint.latency_s;
    for (const auto& [cable, part] : joint.cables) {
      way.directions.emplace_back(2 * cable + (route[i] < route[i + 1] ? 1 : 0),
                                  part / cable_rates_[cable]);
    }
  }
  return way;
}

}  // namespace mccl::schedule
