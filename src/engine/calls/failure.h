// Why a group failed, as it travels between ranks.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "base/rank.h"
#include "engine/calls/call.h"

namespace mccl::engine {

enum class FailureKind : std::uint8_t { timeout, peer, mismatch, aborted, corruption };
inline constexpr int kFailureKindCount = 5;

struct Failure {
  FailureKind kind = FailureKind::aborted;
  /// What happened, as a clause that can stand alone and says neither the call nor where it was
  /// seen, unless those below are empty: "rank 1 is gone: ...".
  std::string reason = {};
  /// The call that met it. Other ranks are not told which message it was: to them it is a_message.
  std::optional<Call> call = {};
  /// Who met it; not valid where the reason says so.
  GroupRank seen_by = {};
};

/// Of a Failure: a message, whichever.
inline constexpr Call a_message{.collective = Collective::send};

/// The failure that `error` stands for, to announce to the other ranks.
Failure failure_of(const std::exception& error) noexcept;

/// An abort for this reason; for "out of memory" where there is no memory for the text.
Failure aborted(std::string_view reason) noexcept;

/// The exception type that belongs to the kind, with this message.
std::exception_ptr exception_of(FailureKind kind, const std::string& message);

/// The error of `call`, which ends because of `failure`: as describe() below words it. Where there
/// is no memory for the words it is one std::bad_alloc, which all calls share.
std::exception_ptr error_of(const Failure& failure, const Call& call, GroupRank rank,
                            std::string_view verdict) noexcept;

/// How `failure` reads on whichever rank: "all_reduce #2 (sum of 4 f32) failed on rank 0: rank 1 is
/// gone: ...".
std::string describe(const Failure& failure);

/// What this rank's call has become of it, in one sentence that names nothing twice, with what to
/// do: "all_reduce #2 (sum of 4 f32) on rank 0 failed: rank 1 is gone: ...". `verdict`: "failed",
/// "cannot start".
std::string describe(const Failure& failure, const Call& call, GroupRank rank,
                     std::string_view verdict);

}  // namespace mccl::engine
