// The last collectives of a group, for comparison with a peer's call of the same sequence number.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "engine/calls/call.h"

namespace mccl::engine {

/// Takes constant memory. Used under the engine's progress lock.
class CallHistory {
 public:
  void started(const Call& call) {
    calls_[call.sequence % kCalls] = call;
    last_ = call.sequence;
  }
  /// The call with this sequence number, if it is among the last kCalls.
  std::optional<Call> find(std::uint64_t sequence) const {
    const Call& call = calls_[sequence % kCalls];
    if (sequence == 0 || call.sequence != sequence) return std::nullopt;
    return call;
  }
  /// The last call; its sequence is 0 if there was none.
  const Call& last() const { return calls_[last_ % kCalls]; }

 private:
  static constexpr std::size_t kCalls = 64;
  std::array<Call, kCalls> calls_{};
  std::uint64_t last_ = 0;
};

}  // namespace mccl::engine
