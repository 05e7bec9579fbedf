#include "mccl/work.h"

#include <fmt/format.h>

#include <exception>
#include <vector>

#include "c_api/handles.h"
#include "c_api/options.h"
#include "mccl/c.h"
#include "mccl/error.h"

namespace mccl::c_api {
namespace {

const Work& work_of(const char* call, const mccl_work* work) {
  return checked(call, "work", work).value;
}

/// Returns the work if its call has started. Otherwise throws InvalidArgument, because a wait for
/// the call could block forever.
const mccl_work& started(const char* call, const char* argument, const mccl_work* work) {
  const mccl_work& handle = checked(call, argument, work);
  if (!handle.started || *handle.started) return handle;
  throw InvalidArgument(
      fmt::format("{}: {} belongs to a call in an open batch; call mccl_end_coalescing first, on "
                  "the thread that began the batch",
                  call, argument));
}

/// Calls a C callback with the status and error text of a completed call. Runs on the thread that
/// completes calls and never throws. If memory for the text runs out, the callback receives
/// MCCL_ERROR_OUT_OF_MEMORY.
void notify(mccl_callback callback, void* user, const std::exception_ptr& error) noexcept {
  ErrorText failure;
  const char* text = nullptr;
  try {
    failure = text_of(error);
    text = failure.text.c_str();
  } catch (...) {
    failure.status = MCCL_ERROR_OUT_OF_MEMORY;
    text = "out of memory";
  }
  callback(user, failure.status, text);
}

}  // namespace

}  // namespace mccl::c_api

using namespace mccl::c_api;

mccl_status mccl_work_wait(const mccl_work* work, int64_t timeout_ms) noexcept {
  return guarded(
      [&] { started("mccl_work_wait", "work", work).value.wait(limit_of(timeout_ms, {})); });
}

mccl_status mccl_work_test(const mccl_work* work, int32_t* done) noexcept {
  constexpr const char* kCall = "mccl_work_test";
  return guarded([&] {
    require(kCall, "done", done);
    *done = 0;
    const mccl::Work& call = work_of(kCall, work);
    if (!call.done()) return;
    *done = 1;
    if (const std::exception_ptr error = call.error()) std::rethrow_exception(error);
  });
}

mccl_status mccl_work_error(const mccl_work* work, char* text, size_t capacity,
                            size_t* length) noexcept {
  constexpr const char* kCall = "mccl_work_error";
  return guarded([&] {
    copy_text(kCall, text_of(work_of(kCall, work).error()).text, text, capacity, length);
  });
}

int32_t mccl_work_source(const mccl_work* work) noexcept {
  return value_or(-1, [&] { return work_of("mccl_work_source", work).source(); });
}

mccl_status mccl_work_on_done(const mccl_work* work, mccl_callback callback, void* user) noexcept {
  constexpr const char* kCall = "mccl_work_on_done";
  return guarded([&] {
    // Use a copy of the Work, because the callback may destroy the handle.
    const mccl::Work call = work_of(kCall, work);
    if (!callback)
      throw mccl::InvalidArgument("mccl_work_on_done: callback is NULL; pass a function");
    call.on_done(
        [callback, user](const std::exception_ptr& error) { notify(callback, user, error); });
  });
}

mccl_status mccl_work_all(const mccl_work* const* works, size_t count, mccl_work** all) noexcept {
  constexpr const char* kCall = "mccl_work_all";
  return guarded([&] {
    clear(kCall, "all", all);
    if (count > 0) require(kCall, "works", works);
    auto handle = std::make_unique<mccl_work>();
    std::vector<mccl::Work> parts;
    for (std::size_t i = 0; i < count; ++i) {
      const mccl_work& part = started(kCall, fmt::format("works[{}]", i).c_str(), works[i]);
      parts.push_back(part.value);
      handle->groups.insert(handle->groups.end(), part.groups.begin(), part.groups.end());
    }
    handle->value = mccl::Work::all_of(std::move(parts));
    *all = handle.release();
  });
}

void mccl_work_destroy(mccl_work* work) noexcept { destroy("mccl_work_destroy", work); }
