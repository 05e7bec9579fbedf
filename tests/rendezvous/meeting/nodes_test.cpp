#include <gtest/gtest.h>

#include <algorithm>

#include "rendezvous/meeting/neighbours.h"

namespace mccl::rendezvous {
namespace {

/// Tests every way in which up to four ranks can have mapped each other.
TEST(Nodes, NeedEveryMemberToMapEveryOther) {
  for (int size = 1; size <= 4; ++size) {
    const int pairs = size * (size - 1);
    for (unsigned bits = 0; bits < 1u << pairs; ++bits) {
      std::vector<std::vector<int>> mapped(size);
      unsigned bit = 0;
      for (int a = 0; a < size; ++a) {
        for (int b = 0; b < size; ++b) {
          if (a != b && (bits >> bit++ & 1) != 0) mapped[a].push_back(b);
        }
      }
      const auto mutual = [&](int a, int b) {
        return std::count(mapped[a].begin(), mapped[a].end(), b) != 0 &&
               std::count(mapped[b].begin(), mapped[b].end(), a) != 0;
      };
      bool any = false;
      for (int a = 0; a < size; ++a) {
        for (int b = 0; b < a; ++b) any |= mutual(a, b);
      }
      const std::vector<int> nodes = nodes_from(mapped);
      ASSERT_EQ(nodes.empty(), !any) << bits;
      if (!any) continue;
      ASSERT_EQ(nodes.size(), static_cast<std::size_t>(size));
      int next = 0;
      for (int a = 0; a < size; ++a) {
        ASSERT_LE(nodes[a], next) << "numbers are not in order of the first rank";
        next = std::max(next, nodes[a] + 1);
        // Ranks of one node have mapped each other. A rank that fits into the node of rank 0 is in
        // it.
        bool fits_first = a > 0;
        for (int b = 0; b < size; ++b) {
          if (a != b && nodes[a] == nodes[b]) {
            ASSERT_TRUE(mutual(a, b)) << bits;
          }
          if (a != b && nodes[b] == 0) fits_first &= mutual(a, b);
        }
        ASSERT_TRUE(!fits_first || nodes[a] == 0) << bits;
      }
    }
  }
}

}  // namespace
}  // namespace mccl::rendezvous
