// One rank's description of a call. It suffices to decide whether two ranks make the same call, and
// to describe the call in error messages.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/coding.h"
#include "mccl/types.h"

namespace mccl::engine {

struct Call {
  Collective collective = Collective::barrier;
  DType dtype = DType::u8;
  ReduceKind kind = ReduceKind::sum;
  /// Rank of the root of a rooted collective; -1 for all other calls.
  std::int32_t root = -1;
  /// Number of elements, defined so that it is equal on all ranks. For gathers, scatters and an
  /// even all_to_all, it is the sum of all parts; for an all_to_all with counts, it is 0; for any
  /// other call, it is the number of elements in the buffer.
  std::uint64_t count = 0;
  /// Number of the collective in its group, from 1. For a point-to-point message, its number among
  /// the messages from its sender to its receiver in the group, from 1; 0 while it is not known.
  std::uint64_t sequence = 0;
  /// Point to point only: the other rank (-1: any sender), and the tag of the message.
  std::int32_t peer = -1;
  std::uint32_t tag = 0;
  /// How the elements are divided among the ranks: hash_of() of the counts of all ranks (0 without
  /// counts), or kOwnCounts if each rank knows only its own counts.
  std::uint64_t counts_hash = 0;
  /// Encoding of a compressed sum on the wire; empty if the sum is exact.
  Coding coding = {};
  /// True for a collective that a GPU carries out without the host. Such collectives are numbered
  /// separately (EnqueuedCalls).
  bool enqueued = false;
  /// CallSite::number of the place in the program that makes the call; 0 if unknown. The number is
  /// not sent to other ranks, and not compared with theirs.
  std::uint16_t site = 0;

  /// True if `other`, another rank's call with the same sequence number, agrees with this call in
  /// everything that must be equal on all ranks.
  bool matches(const Call& other) const;
};

/// True unless the call is a point-to-point message.
constexpr bool is_collective(const Call& call) {
  return call.collective != Collective::send && call.collective != Collective::recv;
}

constexpr bool reduces(const Call& call) {
  return call.collective == Collective::all_reduce || call.collective == Collective::reduce ||
         call.collective == Collective::reduce_scatter;
}

/// Value of Call::counts_hash for an all_to_all with counts, whose messages are checked one by one.
inline constexpr std::uint64_t kOwnCounts = 1;

/// Returns a 64-bit hash of the counts, which is never kOwnCounts. Returns 0 if all counts are
/// equal, because such a call does the same as a call without counts, whose Call::counts_hash is 0.
std::uint64_t hash_of(std::span<const std::size_t> counts);

/// Text for error messages and logs: "all_reduce #12 (sum of 1000 f32)", "recv from rank 2
/// (message 3, tag 7, 1000 f32)".
std::string describe(const Call& call);
/// The same with the number `sequence` in place of Call::sequence, which is not read.
std::string describe(const Call& call, std::uint64_t sequence);
/// Describes a `call` that differs from `expected`. Returns describe(call). If describe() returns
/// the same text for both calls, adds that the counts per rank differ.
std::string describe_unlike(const Call& call, const Call& expected);
/// Returns the end of a sentence that says which call a peer makes: " instead" or, if the place in
/// the program that makes this rank's `call` is known, " instead of the call at train.py:42".
std::string instead_of(const Call& call);
/// Returns the place in the program that makes the call, as " (called at train.py:42)"; empty if it
/// is not known.
std::string called_at(const Call& call);

/// The encoding of a call, little-endian and without padding. Omits the peer and the tag, which
/// only point-to-point calls have.
struct CallCode {
  std::uint8_t collective = 0;  ///< Plus kEnqueuedCode if Call::enqueued is set.
  std::uint8_t dtype = 0;
  std::uint8_t kind = 0;
  std::uint8_t codec = 0;
  /// The root or, if there is a codec, Coding::kept, because calls with a codec have no root.
  std::int32_t root = 0;
  std::uint64_t count = 0;
  std::uint64_t counts_hash = 0;
  std::uint64_t sequence = 0;
};
static_assert(sizeof(CallCode) == 32);

inline constexpr std::uint8_t kEnqueuedCode = 0x80;
static_assert(kCollectiveCount <= kEnqueuedCode);

/// The bytes of a CallCode as words. They are composed in registers: a processor stalls when it
/// loads a word whose bytes were stored separately just before.
using CallWords = std::array<std::uint64_t, 4>;

inline CallWords words_of(const Call& call) {
  const auto at = [](auto value, int bit) { return static_cast<std::uint64_t>(value) << bit; };
  const std::uint32_t root = static_cast<std::uint32_t>(call.coding ? call.coding.kept : call.root);
  return {at(call.collective, 0) | (call.enqueued ? kEnqueuedCode : 0) | at(call.dtype, 8) |
              at(call.kind, 16) | at(call.coding.codec, 24) | at(root, 32),
          call.count, call.counts_hash, call.sequence};
}

CallCode encode(const Call& call);
/// Returns nullopt for bytes that encode() cannot have written.
std::optional<Call> decode(const CallCode& code);

std::uint64_t fingerprint_of(const Call& call);

}  // namespace mccl::engine
