// Data whose right result is known beforehand, to the bit, however a reduction is ordered: small
// integers, scaled by powers of two where the type has an exponent, so that nothing rounds or
// overflows on the way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "mccl/types.h"

namespace mccl::cli::bench {

/// Elements repeat with this period: a prime, so that data which lands at a wrong offset shows.
inline constexpr std::size_t kPeriod = 4093;

/// Endless data of one type. Offsets and lengths are in elements.
class Pattern {
 public:
  /// `cycle` is kPeriod elements of `element_bytes`.
  Pattern(std::vector<std::byte> cycle, std::size_t element_bytes)
      : cycle_(std::move(cycle)), element_bytes_(element_bytes) {}

  /// Writes what the pattern holds from element `first` on.
  void fill(std::span<std::byte> memory, std::size_t first = 0) const;
  /// Elements that differ from what the pattern holds from `first` on.
  std::uint64_t count_wrong(std::span<const std::byte> memory, std::size_t first = 0) const;
  /// Of floats: the largest difference from it, over the largest magnitude that it holds.
  double largest_error(DType dtype, std::span<const std::byte> memory, std::size_t first = 0) const;

 private:
  std::vector<std::byte> cycle_;
  std::size_t element_bytes_;
};

/// No sum is larger than this before it is scaled, by 4 at most.
using Most = std::uint64_t;
inline constexpr Most kNoLimit = std::numeric_limits<Most>::max();
/// Of numbers that every codec can carry, fp16 among them.
inline constexpr Most kMostRounded = 4096;

/// What one rank gives to a reduction; premul_sum is meant with kPremulFactor.
Pattern contribution(DType dtype, ReduceKind kind, int rank, int ranks, Most most = kNoLimit);
/// What the reduction of all ranks' contributions is.
Pattern reduction(DType dtype, ReduceKind kind, int ranks, Most most = kNoLimit);
/// Data to be moved; different for every source.
Pattern message(DType dtype, std::uint64_t source);

inline constexpr double kPremulFactor = 2;

}  // namespace mccl::cli::bench
