// Helpers with which the C functions for collectives and messages call the methods of a Group.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "c_api/boundary.h"
#include "c_api/handles.h"
#include "c_api/options.h"
#include "mccl/error.h"
#include "mccl/group.h"

namespace mccl::c_api {

inline Group& group_of(const char* call, const mccl_group* group) {
  return *checked(call, "group", group).value;
}

/// Returns the flag of this thread's open batch of the group; null if there is none. The flag
/// becomes true when the batch ends and its calls start. Before this, no thread may wait for the
/// calls.
std::shared_ptr<const std::atomic<bool>> coalescing_on(const std::shared_ptr<Group>& group);

/// Makes a handle for a call of `group`; the call has not started yet.
inline std::unique_ptr<mccl_work> new_work(const std::shared_ptr<Group>& group) {
  auto handle = std::make_unique<mccl_work>();
  handle->groups.push_back(group);
  return handle;
}

/// Runs `start(group, options)`, which starts a call and returns its Work. Waits for the call if
/// `work` is null and this thread has no open batch of the group.
template <typename Start>
mccl_status submit(const char* call, mccl_group* group, const mccl_call_options* options,
                   mccl_work** work, Start&& start) noexcept {
  return guarded([&] {
    if (work) *work = nullptr;
    Group& target = group_of(call, group);
    ReadOptions read = read_options(call, options);
    auto coalescing = coalescing_on(group->value);
    const bool waits = !work && !coalescing;
    read.call.caller_waits = !coalescing && (waits || read.call.caller_waits);
    // The handle is allocated first, because nothing may fail after the call has started.
    std::unique_ptr<mccl_work> handle = work ? new_work(group->value) : nullptr;
    Work started = start(target, std::as_const(read));
    if (waits) started.wait();
    if (!handle) return;
    handle->value = std::move(started);
    handle->started = std::move(coalescing);
    *work = handle.release();
  });
}

/// submit() for a call that reduces nothing: refuses the options for reductions. Runs
/// `start(group, call_options)`.
template <typename Start>
mccl_status submit_move(const char* call, mccl_group* group, const mccl_call_options* options,
                        mccl_work** work, Start&& start) noexcept {
  return submit(call, group, options, work, [&](Group& target, const ReadOptions& read) {
    refuse_factor(call, read);
    refuse_left_out(call, read);
    return start(target, read.call);
  });
}

}  // namespace mccl::c_api
