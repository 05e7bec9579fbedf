// Why a group failed, as it travels between ranks.
#pragma once

#include <cstdint>
#include <exception>
#include <string>

namespace mccl::engine {

enum class FailureKind : std::uint8_t { timeout, peer, mismatch, aborted, corruption };
inline constexpr int kFailureKindCount = 5;

struct Failure {
  FailureKind kind = FailureKind::aborted;
  std::string reason;
};

/// What `error` is, for telling the other ranks.
Failure failure_of(const std::exception& error);

/// The exception type that belongs to the kind, with this message.
std::exception_ptr exception_of(FailureKind kind, const std::string& message);

}  // namespace mccl::engine
