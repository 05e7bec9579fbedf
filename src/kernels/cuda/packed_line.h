// How data lie in lines that have one flag each, for the host's tests too: of the 512 bytes that a
// warp writes at a time, 480 are data, and the last eight bytes of each 128 are the flag. A lane
// holds 16 bytes, in words of eight: of data in their order, and of lines as they are written.
#pragma once

#include "kernels/cuda/arithmetic.h"

namespace mccl::kernels::cuda {

inline constexpr int kLanes = 32;
inline constexpr int kDataLanes = 30;    ///< That hold data before they are packed.
inline constexpr int kWordsOfLine = 15;  ///< Of data.
inline constexpr int kDataOfWarp = 480;  ///< Bytes.
inline constexpr int kBytesOfWarp = 512;

MCCL_BOTH bool has_flag(int lane) { return lane % 8 == 7; }

/// Where a word of data is taken from: of a lane its first or its second.
struct WordPlace {
  int lane;
  bool second;
};

/// Of the words that `lane` writes, the first or the second: where it lies in the data. The second
/// one of a lane with a flag is none.
MCCL_BOTH WordPlace in_data(int lane, bool second) {
  const int word = lane / 8 * kWordsOfLine + lane % 8 * 2 + (second ? 1 : 0);
  return {word / 2 % kLanes, word % 2 == 1};
}

/// Of the words of data that `lane` has, the first or the second: where it lies in the lines. Only
/// of the first kDataLanes.
MCCL_BOTH WordPlace in_lines(int lane, bool second) {
  const int word = lane * 2 + (second ? 1 : 0);
  const int of_line = word % kWordsOfLine;
  return {(word / kWordsOfLine * 8 + of_line / 2) % kLanes, of_line % 2 == 1};
}

}  // namespace mccl::kernels::cuda
