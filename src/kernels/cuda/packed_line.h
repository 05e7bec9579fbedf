// The layout of lines that have one flag each, shared with the host's tests. A warp writes 512
// bytes at a time, 480 of which are data. The last eight bytes of each 128 are the flag. A lane
// holds 16 bytes, in words of eight. Data are in their original order before they are packed, and
// in the order of the lines afterwards.
#pragma once

#include "kernels/cuda/arithmetic.h"

namespace mccl::kernels::cuda {

inline constexpr int kLanes = 32;
inline constexpr int kDataLanes = 30;    ///< Lanes that hold data before packing.
inline constexpr int kWordsOfLine = 15;  ///< Data words per line.
inline constexpr int kDataOfWarp = 480;  ///< In bytes.
inline constexpr int kBytesOfWarp = 512;

MCCL_BOTH bool has_flag(int lane) { return lane % 8 == 7; }

/// The position of a word: the lane, and whether it is the lane's second word.
struct WordPlace {
  int lane;
  bool second;
};

/// Returns the position in the data of the first or second word that `lane` writes. Meaningless for
/// the second word of a lane with a flag.
MCCL_BOTH WordPlace in_data(int lane, bool second) {
  const int word = lane / 8 * kWordsOfLine + lane % 8 * 2 + (second ? 1 : 0);
  return {word / 2 % kLanes, word % 2 == 1};
}

/// Returns the position in the lines of the first or second data word of `lane`. Valid for the
/// first kDataLanes lanes only.
MCCL_BOTH WordPlace in_lines(int lane, bool second) {
  const int word = lane * 2 + (second ? 1 : 0);
  const int of_line = word % kWordsOfLine;
  return {(word / kWordsOfLine * 8 + of_line / 2) % kLanes, of_line % 2 == 1};
}

}  // namespace mccl::kernels::cuda
