// The size, in blocks and in bytes, of data that a Compression encodes. A block always takes the
// same number of bytes, whatever its content, so every rank knows how long a message is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "mccl/compression.h"
#include "mccl/types.h"

namespace mccl {

/// A block has one of two forms: one rank's contribution, or the sum of all ranks. They differ only
/// for topk, where a sum can hold elements that different ranks contributed.
enum class Coded : std::uint8_t { contribution, sum };

struct Coding {
  Codec codec = Codec::none;
  std::uint16_t kept = 0;         ///< topk: elements kept in a contribution's block.
  std::uint16_t kept_of_sum = 0;  ///< topk: elements kept in a sum's block.

  /// Elements per block; 1 without a codec. The last block of a buffer may be partial, but takes
  /// the full number of bytes.
  std::size_t block() const;
  std::size_t block_bytes(Coded form) const;
  /// Encoded size in bytes of `count` elements that start at a block boundary.
  std::size_t bytes(std::size_t count, Coded form) const;

  explicit operator bool() const { return codec != Codec::none; }
  friend bool operator==(const Coding&, const Coding&) = default;
};

Coding coding_of(const Compression& compression, int ranks);

/// Text such as "int8", or "topk of 41 in 4096" if 41 elements are kept in each block of 4096.
std::string describe(const Coding& coding);

/// True if the call's result may be rounded: sums and averages of floats, in all_reduce and
/// reduce_scatter.
bool may_be_coded(Collective collective, DType dtype, ReduceKind kind);
/// True if encoded blocks take fewer bytes than the elements that they encode.
bool shortens(const Coding& coding, DType dtype);

}  // namespace mccl
