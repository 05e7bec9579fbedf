// Calls for which MPI is to wait: all ranks gather, then a thread of the group's makes the call.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "backend/mpi/engine.h"

namespace mccl::mpi {
namespace {

/// From here on the form that waits gains Open MPI, which loses half its rate in the other, more
/// than a thread's turn costs. MPICH loses nothing.
constexpr std::size_t kBulkBytes = std::size_t{1} << 20;

}  // namespace

/// By what all ranks know alike.
bool Engine::is_bulk(const Request& request) const {
  return makes_bulk_ && is_collective(request.collective) &&
         request.count * size_of(request.dtype) >= kBulkBytes;
}

/// Without the lock while MPI waits, so that whoever drives goes on.
void Engine::hand_to_worker(const std::shared_ptr<Call>& call) {
  GroupState& group = *call->group;
  // A callback may wait for this very call.
  if (!group.worker || group.worker->is_out()) group.worker = std::make_unique<Worker>();
  call->working = true;
  ++working_;
  group.worker->take([this, call](std::atomic<bool>& out) {
    std::exception_ptr error;
    try {
      call->flight->begin(call->group->place, call->request(), true);
      while (!call->flight->test()) {
      }
    } catch (...) {
      error = std::current_exception();
    }
    Callbacks callbacks;
    {
      const std::lock_guard lock(driving_);
      end_bulk(call, error);
      if (asked_) sweep();
      callbacks = take_callbacks();
      out = !callbacks.empty();
    }
    run_callbacks(std::move(callbacks));
    out = false;
  });
}

void Engine::end_bulk(const std::shared_ptr<Call>& call, std::exception_ptr error) {
  GroupState& group = *call->group;
  if (call->done()) return;  // it was given up, and its memory may be another's
  --working_;
  call->working = false;
  group.bulk.reset();
  try {
    if (error) std::rethrow_exception(error);
    call->flight->land(call->request());
  } catch (const std::exception& thrown) {
    return fail(call->group, kind_of(thrown),
                fmt::format("{} on rank {} of group '{}' failed: {}", call->description(),
                            group.place.rank, group.name, thrown.what()),
                true);
  }
  std::erase(active_, call);
  finish(call, group.failed() ? error_of(*call) : nullptr);
  begin_waiting(group);
}

void Engine::begin_waiting(GroupState& group) {
  while (!group.waiting.empty() && !group.bulk) {
    const std::shared_ptr<Call> next = std::move(group.waiting.front());
    group.waiting.pop_front();
    begin(next);
  }
}

}  // namespace mccl::mpi
