// One rank's description of a call: enough to decide whether two ranks make the same call, and to
// name it in a message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/coding.h"
#include "mccl/types.h"

namespace mccl::engine {

struct Call {
  Collective collective = Collective::barrier;
  DType dtype = DType::u8;
  ReduceKind kind = ReduceKind::sum;
  /// The root of a rooted collective, else -1.
  std::int32_t root = -1;
  /// Number of elements, defined such that all ranks have the same value: the size of the buffer or
  /// of one part. For gathers and scatters it is the size of all parts together, for an even
  /// all_to_all that of the whole input, and for an all_to_all with counts 0.
  std::uint64_t count = 0;
  /// Number of the collective in its group, from 1; 0 for point to point.
  std::uint64_t sequence = 0;
  /// Point to point only.
  std::int32_t peer = -1;
  std::uint32_t tag = 0;
  /// How the count is divided: hash_of() the counts of all ranks, or kOwnCounts where each rank
  /// knows only its own.
  std::uint64_t counts_hash = 0;
  /// How a sum is encoded on the wire; empty if it is exact.
  Coding coding = {};

  /// True if the calls that two ranks make at the same place in the order belong together.
  bool matches(const Call& other) const;
};

/// True unless the call is a point-to-point message.
constexpr bool is_collective(const Call& call) {
  return call.collective != Collective::send && call.collective != Collective::recv;
}

/// Call::counts_hash of an all_to_all with counts, whose messages are checked one by one.
inline constexpr std::uint64_t kOwnCounts = 1;

/// Returns a 64-bit hash of the counts, which is never kOwnCounts. Returns 0 if all counts are
/// equal, because a call without counts means the same.
std::uint64_t hash_of(std::span<const std::size_t> counts);

/// "all_reduce #12 (sum of 1000 f32)", "recv from rank 2 (tag 7, 1000 f32)".
std::string describe(const Call& call);
/// Describes a `call` that differs from `expected`. Returns the text of describe(), and adds the
/// counts per rank if the texts of both calls are the same.
std::string describe_unlike(const Call& call, const Call& expected);

}  // namespace mccl::engine
