// Test data for benchmarks. Every result is known in advance, bit for bit, whatever the order of a
// reduction: the elements are small integers, scaled by powers of two if the type has an exponent,
// so no sum or product rounds or overflows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "mccl/types.h"

namespace mccl::cli::bench {

/// Period of a pattern, in elements. It is a prime, so that data at a wrong offset is detected.
inline constexpr std::size_t kPeriod = 4093;

/// An endless, periodic sequence of elements of one type.
class Pattern {
 public:
  /// `cycle` holds kPeriod elements of `element_bytes` bytes each.
  Pattern(std::vector<std::byte> cycle, std::size_t element_bytes)
      : cycle_(std::move(cycle)), element_bytes_(element_bytes) {}

  /// Writes the pattern to `memory`, starting with element `first`.
  void fill(std::span<std::byte> memory, std::size_t first = 0) const;
  /// Returns the number of elements that differ from the pattern, which starts with element
  /// `first`.
  std::uint64_t count_wrong(std::span<const std::byte> memory, std::size_t first = 0) const;
  /// The largest difference from the pattern, relative to the largest expected magnitude, or NaN if
  /// `memory` contains a NaN. Only for floating types.
  double largest_error(DType dtype, std::span<const std::byte> memory, std::size_t first = 0) const;

 private:
  std::vector<std::byte> cycle_;
  std::size_t element_bytes_;
};

/// Limit of the sum of all ranks' elements, before they are scaled by a factor of at most 4.
using Most = std::uint64_t;
inline constexpr Most kNoLimit = std::numeric_limits<Most>::max();
/// Limit for sums that a codec may round, so that all numbers fit every codec, including fp16.
inline constexpr Most kMostRounded = 4096;

/// The factor of a premul_sum must be kPremulFactor.
Pattern contribution(DType dtype, ReduceKind kind, int rank, int ranks, Most most = kNoLimit);
Pattern reduction(DType dtype, ReduceKind kind, int ranks, Most most = kNoLimit);
/// Data for a call that only moves data. Different values of `source` give different data.
Pattern message(DType dtype, std::uint64_t source);

inline constexpr double kPremulFactor = 2;

}  // namespace mccl::cli::bench
