// What one rank asked for: enough to tell whether two ranks mean the same call, and to name it in a
// message.
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
  /// Root of a rooted collective, else -1.
  std::int32_t root = -1;
  /// Elements, in a measure that all ranks share: of the buffer or of one part, of all parts for
  /// gathers and scatters; of the whole input for an even all_to_all, 0 for one with counts.
  std::uint64_t count = 0;
  /// Collectives of a group count from 1; point to point is not counted.
  std::uint64_t sequence = 0;
  /// Point to point only.
  std::int32_t peer = -1;
  std::uint32_t tag = 0;
  /// How the count is divided: hash_of the counts of all ranks; kOwnCounts where each rank knows
  /// only its own.
  std::uint64_t counts_hash = 0;
  /// How a sum travels; nothing where it is exact.
  Coding coding = {};

  /// Whether two ranks' calls at the same place of the order belong together.
  bool matches(const Call& other) const;
};

/// Not a message of one rank to another.
constexpr bool is_collective(const Call& call) {
  return call.collective != Collective::send && call.collective != Collective::recv;
}

/// Of an all_to_all with counts, whose messages are checked one by one.
inline constexpr std::uint64_t kOwnCounts = 1;

/// Differs for counts that differ, but for accidents of 64 bits, and is never kOwnCounts. 0 when
/// all are equal, since a call without counts means the same.
std::uint64_t hash_of(std::span<const std::size_t> counts);

/// "all_reduce #12 (sum of 1000 f32)", "recv from rank 2 (tag 7, 1000 f32)".
std::string describe(const Call& call);
/// The same where `call` is not what `expected` is: told apart from it also when nothing but the
/// counts of the ranks differ.
std::string describe_unlike(const Call& call, const Call& expected);

}  // namespace mccl::engine
