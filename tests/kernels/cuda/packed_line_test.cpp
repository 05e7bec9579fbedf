// Tests where words are placed in lines that hold one flag each.
#include "kernels/cuda/packed_line.h"

#include <gtest/gtest.h>

#include <set>

namespace mccl::kernels::cuda {
namespace {

/// Packs and unpacks like a warp: each lane handles two words.
TEST(PackedLine, PackingAndUnpackingPreservesData) {
  int data[kLanes][2] = {};
  for (int lane = 0; lane < kDataLanes; ++lane) {
    data[lane][0] = 2 * lane;
    data[lane][1] = 2 * lane + 1;
  }
  int lines[kLanes][2] = {};
  for (int lane = 0; lane < kLanes; ++lane) {
    for (const bool second : {false, true}) {
      const WordPlace place = in_data(lane, second);
      lines[lane][second ? 1 : 0] =
          second && has_flag(lane) ? -1 : data[place.lane][place.second ? 1 : 0];
    }
  }
  for (int lane = 0; lane < kDataLanes; ++lane) {
    for (const bool second : {false, true}) {
      const WordPlace place = in_lines(lane, second);
      EXPECT_EQ(lines[place.lane][place.second ? 1 : 0], 2 * lane + (second ? 1 : 0));
    }
  }
}

TEST(PackedLine, EachLineHasOneFlagAtItsEndAndAllWordsOnce) {
  std::set<int> words;
  int flags = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    EXPECT_EQ(has_flag(lane), lane * 16 % 128 == 112);
    for (const bool second : {false, true}) {
      if (second && has_flag(lane)) {
        ++flags;
        continue;
      }
      const WordPlace place = in_data(lane, second);
      words.insert(place.lane * 2 + (place.second ? 1 : 0));
    }
  }
  EXPECT_EQ(flags, kBytesOfWarp / 128);
  EXPECT_EQ(words.size(), static_cast<std::size_t>(kDataOfWarp / 8));
  EXPECT_EQ(*words.rbegin(), kDataOfWarp / 8 - 1);
}

}  // namespace
}  // namespace mccl::kernels::cuda
