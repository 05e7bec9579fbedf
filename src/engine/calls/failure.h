// The cause of a group's failure, in the form that ranks announce to each other.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/rank.h"
#include "engine/calls/call.h"

namespace mccl::engine {

enum class FailureKind : std::uint8_t { timeout, peer, mismatch, aborted, corruption };
inline constexpr int kFailureKindCount = 5;

struct Failure {
  FailureKind kind = FailureKind::aborted;
  /// The cause, as a clause that can stand alone: "rank 1 is gone: ...". The text contains the call
  /// and the rank only if `call` and `seen_by` are empty.
  std::string reason = {};
  /// The call in which the failure was detected. If this call is a point-to-point message, the
  /// other ranks receive `a_message` in its place.
  std::optional<Call> call = {};
  /// The rank that detected the failure; invalid if `reason` names that rank.
  GroupRank seen_by = {};
};

/// Value of Failure::call if a point-to-point message failed. It does not identify the message.
inline constexpr Call a_message{.collective = Collective::send};

/// The reason of a failure if the process of `rank` is gone.
std::string gone_text(const auto& rank, std::string_view why) {
  return fmt::format("rank {} is gone: {}", rank, why);
}

/// Converts `error` into a failure to announce to the other ranks.
Failure failure_of(const std::exception& error) noexcept;

/// Returns the failure of a group that was aborted, with the formatted reason. If there is no
/// memory for the text, the reason is "out of memory".
template <typename... Arguments>
Failure aborted(fmt::format_string<Arguments...> format, Arguments&&... arguments) noexcept {
  try {
    return {FailureKind::aborted, fmt::format(format, std::forward<Arguments>(arguments)...)};
  } catch (const std::bad_alloc& error) {
    return failure_of(error);
  }
}

/// Returns an exception with the text `message`, of the type that corresponds to `kind`.
std::exception_ptr exception_of(FailureKind kind, const std::string& message);

/// Returns the exception with which `call` ends because of `failure`. describe() below makes the
/// text of the exception. If there is no memory for the text, returns a std::bad_alloc that all
/// calls share.
std::exception_ptr error_of(const Failure& failure, const Call& call, GroupRank rank,
                            std::string_view verdict) noexcept;

/// Describes `failure` by a text that is the same on every rank: "all_reduce #2 (sum of 4 f32)
/// failed on rank 0: rank 1 is gone: ...".
std::string describe(const Failure& failure);

/// Describes in one sentence this rank's call and why it ended, with advice: "all_reduce #2 (sum of
/// 4 f32) on rank 0 failed: rank 1 is gone: ...". `verdict`: "failed" or "cannot start".
std::string describe(const Failure& failure, const Call& call, GroupRank rank,
                     std::string_view verdict);

}  // namespace mccl::engine
