// Calls of a caller that waits, from their beginning to their end on its own thread.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "backend/mpi/engine.h"

namespace mccl::mpi {
namespace {

/// To ask for the time costs as much as some looks at MPI.
constexpr int kLooksBetweenTimes = 32;

}  // namespace

std::optional<Work> Engine::run_at_once(const std::shared_ptr<Engine>& self,
                                        const std::shared_ptr<GroupState>& group,
                                        const Request& request, std::chrono::milliseconds timeout) {
  constexpr std::uint32_t kTimedEvery = 16;
  if (!callers_drive_ || is_bulk(request)) return {};
  const std::unique_lock lock(driving_, std::try_to_lock);
  if (!lock) return {};
  take_inbox();
  if (group->failed() || group->someone_left || group->bulk || is_over()) return {};
  const bool timed = at_once_++ % kTimedEvery == 0;
  Clock::time_point begun = timed ? Clock::now() : Clock::time_point();
  ++group->started;
  std::unique_ptr<Flight> flight = take_flight();
  std::exception_ptr error;
  try {
    flight->begin(group->place, request);
    int looks = 0;
    while (!flight->test()) {
      if (++looks % kLooksBetweenTimes != 0) continue;
      const Clock::time_point now = Clock::now();
      if (begun == Clock::time_point()) begun = now;
      if (now - begun >= spin_) break;
    }
    if (looks % kLooksBetweenTimes != 0 || looks == 0 || flight->test()) {
      flight->land(request);
      if (timed) {
        CallSample sample;
        sample.execution_s = sample.network_s = seconds_between(begun, Clock::now());
        sample.bytes_sent = request.in.bytes();
        sample.bytes_received = request.out.bytes();
        sample.payload_bytes = std::max(sample.bytes_sent, sample.bytes_received);
        group->metrics->record(sample);
      } else {
        group->tally->count(request.in.bytes(), request.out.bytes());
      }
      spare_.push_back(std::move(flight));
      return Work();
    }
  } catch (const std::exception&) {
    error = std::current_exception();
  }
  const auto call = std::make_shared<Call>(self, group, request);
  call->number = group->started;
  call->submitted = call->begun = begun == Clock::time_point() ? Clock::now() : begun;
  call->timeout = timeout;
  if (timeout.count() > 0) call->deadline = call->submitted + timeout;
  call->caller_waits = true;
  call->flight = std::move(flight);
  ++group->under_way;
  ++pending_;
  active_.push_back(call);
  if (error) {
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& thrown) {
      fail(group, kind_of(thrown),
           fmt::format("{} on rank {} of group '{}' failed: {}", call->description(),
                       group->place.rank, group->name, thrown.what()),
           true);
    }
  }
  return Work(call);
}

}  // namespace mccl::mpi
