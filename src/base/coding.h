// What a Compression comes to in blocks and bytes, which all ranks must share. A block always takes
// the same number of bytes, whatever it holds, so that everybody knows how long a message is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "mccl/compression.h"
#include "mccl/types.h"

namespace mccl {

/// Blocks come in two forms: what one rank gives, and the sum of all ranks. They differ for topk
/// alone, where a sum has a place for every element that any of the ranks gave.
enum class Coded : std::uint8_t { contribution, sum };

struct Coding {
  Codec codec = Codec::none;
  std::uint16_t kept = 0;         ///< topk: elements of a contribution's block.
  std::uint16_t kept_of_sum = 0;  ///< topk: of a sum's.

  /// Elements; 1 for none. The last block of a buffer may hold fewer, and takes as many bytes.
  std::size_t block() const;
  std::size_t block_bytes(Coded form) const;
  /// Of so many elements that begin a block.
  std::size_t bytes(std::size_t count, Coded form) const;

  explicit operator bool() const { return codec != Codec::none; }
  friend bool operator==(const Coding&, const Coding&) = default;
};

/// Among so many ranks.
Coding coding_of(const Compression& compression, int ranks);

/// "int8", "topk of 41 in 4096".
std::string describe(const Coding& coding);

/// Whether sums of this kind may be rounded: sums and averages of floats.
bool may_be_coded(Collective collective, DType dtype, ReduceKind kind);
/// Whether it makes them shorter.
bool shortens(const Coding& coding, DType dtype);

}  // namespace mccl
