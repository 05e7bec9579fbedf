// Cablings of all shapes, for tests of schedules that use them.
#pragma once

#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/cabling.h"
#include "schedule/cable_map.h"

namespace mccl::schedule {

struct Shape {
  std::string name;
  Cabling cabling;
};

inline Cabling cabled(int size, const std::vector<std::pair<int, int>>& pairs, double rate = 0) {
  std::vector<Cable> cables;
  for (const auto& [a, b] : pairs) cables.push_back({.a = a, .b = b, .bytes_per_s = rate});
  return {size, std::move(cables)};
}

inline Cabling ring_of(const std::vector<int>& order) {
  std::vector<std::pair<int, int>> pairs;
  for (std::size_t i = 0; i < order.size(); ++i)
    pairs.emplace_back(order[i], order[(i + 1) % order.size()]);
  return cabled(static_cast<int>(order.size()), pairs);
}

inline std::vector<int> ranks_up_to(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

inline CableMap map_of(const Cabling& cabling) {
  return {cabling, ranks_up_to(cabling.size()), 20e-6, 125e6};
}

inline std::vector<Shape> shapes() {
  std::vector<Shape> all;
  for (const int size : {4, 5, 8}) {
    const std::string number = std::to_string(size);
    all.push_back({"ring" + number, ring_of(ranks_up_to(size))});
    std::vector<std::pair<int, int>> line, star, mesh;
    for (int a = 0; a < size; ++a) {
      if (a + 1 < size) line.emplace_back(a, a + 1);
      if (a > 0) star.emplace_back(a == 2 ? 0 : 2, a);
      for (int b = a + 1; b < size; ++b) {
        if (a != 1 || b != 2) mesh.emplace_back(a, b);
      }
    }
    all.push_back({"line" + number, cabled(size, line)});
    all.push_back({"star" + number, cabled(size, star)});
    all.push_back({"mesh_without_one" + number, cabled(size, mesh)});
  }
  all.push_back({"ring_in_another_order", ring_of({0, 3, 1, 4, 2, 5})});
  std::mt19937 random(11);
  for (int i = 0; i < 8; ++i) {
    const int size = 4 + i;
    std::vector<std::pair<int, int>> pairs;
    for (int rank = 1; rank < size; ++rank)
      pairs.emplace_back(static_cast<int>(random() % rank), rank);
    for (int more = 0; more < i; ++more) {
      const int a = static_cast<int>(random() % size), b = static_cast<int>(random() % size);
      if (a != b) pairs.emplace_back(a, b);
    }
    all.push_back({"random" + std::to_string(i), cabled(size, pairs)});
  }
  return all;
}

}  // namespace mccl::schedule
