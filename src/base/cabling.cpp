#include "base/cabling.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>
#include <utility>

#include "mccl/error.h"

namespace mccl {

std::string text_of(const Cable& cable) {
  const auto end = [](int rank, const std::string& at) {
    return at.empty() ? fmt::format("rank {}", rank) : fmt::format("rank {} ({})", rank, at);
  };
  return fmt::format("the cable between {} and {}", end(cable.a, cable.at_a),
                     end(cable.b, cable.at_b));
}

Cabling::Cabling(int size, std::vector<Cable> cables) : size_(size), cables_(std::move(cables)) {
  for (Cable& cable : cables_) {
    if (cable.a == cable.b || std::min(cable.a, cable.b) < 0 ||
        std::max(cable.a, cable.b) >= size) {
      throw InvalidArgument(
          fmt::format("a cable must join two different ranks from 0 to {}; found {} and {}",
                      size - 1, cable.a, cable.b));
    }
    if (cable.a < cable.b) continue;
    std::swap(cable.a, cable.b);
    std::swap(cable.at_a, cable.at_b);
  }
  std::sort(cables_.begin(), cables_.end(), [](const Cable& x, const Cable& y) {
    return std::tie(x.a, x.b, x.at_a, x.at_b) < std::tie(y.a, y.b, y.at_a, y.at_b);
  });
  find_distances();
}

bool Cabling::shares_an_end() const {
  // The first peer found at each address of each rank, keyed by rank and address.
  std::map<std::pair<int, std::string>, int> others;
  const auto leads_elsewhere = [&](int rank, const std::string& at, int other) {
    return !at.empty() && others.emplace(std::pair(rank, at), other).first->second != other;
  };
  return std::ranges::any_of(cables_, [&](const Cable& cable) {
    const bool at_a = leads_elsewhere(cable.a, cable.at_a, cable.b);
    return leads_elsewhere(cable.b, cable.at_b, cable.a) || at_a;
  });
}

void Cabling::find_distances() {
  const auto n = static_cast<std::size_t>(size_);
  std::vector<std::vector<int>> joined(n);
  for (const Cable& cable : cables_) {
    joined[static_cast<std::size_t>(cable.a)].push_back(cable.b);
    joined[static_cast<std::size_t>(cable.b)].push_back(cable.a);
  }
  distances_.assign(n * n, -1);
  for (std::size_t from = 0; from < n; ++from) {
    int* const to = distances_.data() + from * n;
    std::deque<int> reached{static_cast<int>(from)};
    to[from] = 0;
    for (; !reached.empty(); reached.pop_front()) {
      const auto here = static_cast<std::size_t>(reached.front());
      for (const int next : joined[here]) {
        if (to[next] >= 0) continue;
        to[next] = to[here] + 1;
        reached.push_back(next);
      }
    }
  }
  complete_ = std::ranges::all_of(distances_, [](int d) { return d == 0 || d == 1; });
}

std::vector<Cable> Cabling::between(int a, int b) const {
  std::vector<Cable> found;
  for (const Cable& cable : cables_) {
    if (cable.a == std::min(a, b) && cable.b == std::max(a, b)) found.push_back(cable);
  }
  return found;
}

int Cabling::distance(int from, int to) const {
  if (size_ == 0) return from == to ? 0 : 1;
  return distances_[static_cast<std::size_t>(from) * static_cast<std::size_t>(size_) +
                    static_cast<std::size_t>(to)];
}

int Cabling::next(int from, int to) const {
  const int left = distance(from, to);
  if (left <= 1) return left < 0 ? -1 : to;
  for (int rank = 0; rank < size_; ++rank) {
    if (distance(from, rank) == 1 && distance(rank, to) == left - 1) return rank;
  }
  return -1;
}

std::vector<int> Cabling::way(int from, int to) const {
  std::vector<int> ranks{from};
  while (ranks.back() != to) {
    const int rank = next(ranks.back(), to);
    if (rank < 0) return {};
    ranks.push_back(rank);
  }
  return ranks;
}

std::vector<std::vector<int>> Cabling::parts() const {
  std::vector<std::vector<int>> parts;
  std::vector<bool> seen(static_cast<std::size_t>(size_), false);
  for (int first = 0; first < size_; ++first) {
    if (seen[static_cast<std::size_t>(first)]) continue;
    std::vector<int>& part = parts.emplace_back();
    for (int rank = first; rank < size_; ++rank) {
      if (distance(first, rank) < 0) continue;
      seen[static_cast<std::size_t>(rank)] = true;
      part.push_back(rank);
    }
  }
  std::ranges::stable_sort(parts, [](const auto& x, const auto& y) { return x.size() > y.size(); });
  return parts;
}

}  // namespace mccl
