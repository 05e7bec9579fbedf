// The layout of packed lines, shared with tests on the host. A line has 128 bytes, of which the
// last eight are the flag. A warp writes four lines at a time, which hold 480 bytes of data. Each
// lane (thread of the warp) holds 16 bytes, as two words of eight bytes. Packing moves the data
// words from their original order to their positions in the lines.
#pragma once

#include "kernels/cuda/arithmetic.h"

namespace mccl::kernels::cuda {

inline constexpr int kLanes = 32;
inline constexpr int kDataLanes = 30;    ///< Number of lanes that hold data before packing.
inline constexpr int kWordsOfLine = 15;  ///< Number of data words per line.
inline constexpr int kDataOfWarp = 480;  ///< Number of data bytes in the lines that a warp writes.
/// Number of bytes in the lines that a warp writes, flags included.
inline constexpr int kBytesOfWarp = 512;

MCCL_BOTH bool has_flag(int lane) { return lane % 8 == 7; }

/// The position of a word: the lane, and whether it is the lane's second word.
struct WordPlace {
  int lane;
  bool second;
};

/// Returns the position, in the original data, of a word that `lane` writes: the lane's second word
/// if `second` is set, else its first. The result has no meaning for the second word of a lane with
/// a flag.
MCCL_BOTH WordPlace in_data(int lane, bool second) {
  const int word = lane / 8 * kWordsOfLine + lane % 8 * 2 + (second ? 1 : 0);
  return {word / 2 % kLanes, word % 2 == 1};
}

/// Returns the position, in the lines, of a word of original data that `lane` holds: the lane's
/// second word if `second` is set, else its first. Only the first kDataLanes lanes hold original
/// data.
MCCL_BOTH WordPlace in_lines(int lane, bool second) {
  const int word = lane * 2 + (second ? 1 : 0);
  const int of_line = word % kWordsOfLine;
  return {(word / kWordsOfLine * 8 + of_line / 2) % kLanes, of_line % 2 == 1};
}

}  // namespace mccl::kernels::cuda
