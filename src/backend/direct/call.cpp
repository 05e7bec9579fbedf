#include "backend/direct/call.h"

#include <fmt/format.h>

#include <utility>

#include "mccl/error.h"

namespace mccl::direct {

std::string DirectCall::description() const {
  return fmt::format("{} on rank {} ({})", describe(call_), group_->membership().rank,
                     queue_.accelerator().name());
}

/// Returns the group's failure, if it has failed; otherwise null.
std::exception_ptr DirectCall::failure_of_group() const {
  return group_->failed() ? error_of(group_->failure(), call_, group_->membership().rank, "failed")
                          : nullptr;
}

/// Aborts the path and returns an error if the group or the path has failed, or the deadline has
/// passed, which fails the group. Otherwise returns null.
std::exception_ptr DirectCall::failure() {
  const bool is_late = Clock::now() >= deadline_;
  std::exception_ptr error = failure_of_group();
  const std::string reason = error ? std::string() : path_->failure();
  if (!error && reason.empty() && !is_late) return nullptr;
  if (!error && !reason.empty()) {
    error = std::make_exception_ptr(PeerError(fmt::format("{} failed: {}", description(), reason)));
  } else if (!error) {
    engine::Failure failure{
        engine::FailureKind::timeout,
        fmt::format("it timed out after {:.3g} s{}", seconds_between(submitted_, Clock::now()),
                    group_->why_unfinished(call_.sequence)),
        call_, group_->membership().rank};
    error = error_of(failure, call_, group_->membership().rank, "failed");
    if (const auto engine = engine_.lock()) engine->fail(group_, std::move(failure));
  }
  path_->abort();
  return error;
}

bool DirectCall::try_finish() {
  if (done()) return true;
  std::exception_ptr error;
  if (!queue_.ended(number_)) {
    error = failure();
    if (!error) return false;
  } else if (queue_.has_given_up(number_)) {
    const std::string reason = path_->failure();
    error = failure_of_group();
    if (!error) {
      error = std::make_exception_ptr(
          PeerError(fmt::format("{} ended without a result: {}", description(),
                                reason.empty() ? "its group was aborted" : reason)));
    }
  }
  for (const Work::Callback& callback : finish(error)) callback(error);
  return true;
}

bool DirectCall::wait_on_stream(void* stream) {
  if (const std::exception_ptr failed = error()) std::rethrow_exception(failed);
  queue_.lead(stream);
  return true;
}

void DirectCall::help(Clock::time_point deadline) {
  for (const staged::PollBackoff backoff; !try_finish() && Clock::now() < deadline;)
    backoff.pause();
}

}  // namespace mccl::direct
