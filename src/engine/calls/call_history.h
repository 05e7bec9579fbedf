// The last collectives that this rank has called in a group. Each is compared with the peers' calls
// of the same sequence number.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "engine/calls/call.h"

namespace mccl::engine {

/// Records the last collectives of a group, in constant memory. Used under the engine's progress
/// lock.
class CallHistory {
 public:
  /// A call whose sequence number is a multiple of kMark is kept during the next kCalls * kMark
  /// calls, and any other call during the next kCalls calls. If ranks make a million calls a
  /// second, most calls are dropped before a peer asks about them. The calls that kMark selects are
  /// kept long enough to be compared with the peer's calls.
  static constexpr std::uint64_t kMark = 4096;

  /// Records a call that has started. If `compared` is true, also adds the call to the digest that
  /// the ranks compare.
  void started(const Call& call, bool compared = false) {
    if (compared) digest_ = (digest_ + fingerprint_of(call)) * 0x9e3779b97f4a7c15ULL;
    calls_[call.sequence % kCalls] = {call, digest_};
    last_ = call.sequence;
    if (is_mark(call)) marks_[call.sequence / kMark % kCalls] = {call, digest_};
  }
  static bool is_mark(const Call& call) { return call.sequence % kMark == 0; }

  /// The call with this sequence number; nullopt if it has not started or is no longer kept.
  std::optional<Call> find(std::uint64_t sequence) const {
    const Entry* const entry = entry_of(sequence);
    return entry ? std::optional(entry->call) : std::nullopt;
  }
  /// Digest of the call with this sequence number and all earlier calls; 0 if find() returns
  /// nullopt.
  std::uint64_t digest_at(std::uint64_t sequence) const {
    const Entry* const entry = entry_of(sequence);
    return entry ? entry->digest : 0;
  }
  /// The last call that has started; its sequence is 0 if none has started.
  const Call& last() const { return calls_[last_ % kCalls].call; }

 private:
  static constexpr std::size_t kCalls = 64;
  struct Entry {
    Call call;
    std::uint64_t digest = 0;
  };

  const Entry* entry_of(std::uint64_t sequence) const {
    for (const Entry* entry : {&calls_[sequence % kCalls], &marks_[sequence / kMark % kCalls]}) {
      if (sequence != 0 && entry->call.sequence == sequence) return entry;
    }
    return nullptr;
  }

  std::array<Entry, kCalls> calls_{};
  std::array<Entry, kCalls> marks_{};
  std::uint64_t last_ = 0;
  std::uint64_t digest_ = 0;
};

}  // namespace mccl::engine
