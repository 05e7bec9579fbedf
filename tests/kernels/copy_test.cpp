#include "kernels/copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace mccl::kernels {
namespace {

TEST(Copy, StreamingCopiesAreExactForEveryAlignmentAndLength) {
  std::vector<std::byte> from(600), to(600);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 31 + 7);
  for (std::size_t n = 0; n <= 300; n = n < 70 ? n + 1 : n + 13) {
    for (std::size_t src = 0; src < 70; src += 9) {
      for (std::size_t dst = 64; dst < 130; ++dst) {
        std::fill(to.begin(), to.end(), std::byte{0xee});
        copy_past_cache(to.data() + dst, from.data() + src, n);
        for (std::size_t i = 0; i < to.size(); ++i) {
          const bool inside = i >= dst && i < dst + n;
          ASSERT_EQ(to[i], inside ? from[src + i - dst] : std::byte{0xee})
              << n << " bytes from " << src << " to " << dst << ", at " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace mccl::kernels
