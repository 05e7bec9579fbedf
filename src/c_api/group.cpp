#include "mccl/group.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "c_api/handles.h"
#include "c_api/options.h"
#include "c_api/submit.h"
#include "mccl/c.h"
#include "mccl/error.h"

using namespace mccl::c_api;

int32_t mccl_group_rank(const mccl_group* group) noexcept {
  return value_or(-1, [&] { return group_of("mccl_group_rank", group).rank(); });
}

int32_t mccl_group_size(const mccl_group* group) noexcept {
  return value_or(-1, [&] { return group_of("mccl_group_size", group).size(); });
}

const char* mccl_group_name(const mccl_group* group) noexcept {
  return value_or<const char*>(nullptr,
                               [&] { return group_of("mccl_group_name", group).name().c_str(); });
}

mccl_status mccl_group_split(mccl_group* group, int32_t color, int32_t key,
                             mccl_group** part) noexcept {
  constexpr const char* kCall = "mccl_group_split";
  return guarded([&] {
    clear(kCall, "part", part);
    mccl::Group& whole = group_of(kCall, group);
    if (coalescing_on(group->value)) {
      throw mccl::InvalidArgument(
          "mccl_group_split: this thread has an open batch; call mccl_end_coalescing before the "
          "split");
    }
    if (auto own = whole.split(color, key)) hand_out(part, std::move(own));
  });
}

mccl_status mccl_group_shrink(mccl_group* group, int64_t timeout_ms, mccl_group** rest) noexcept {
  constexpr const char* kCall = "mccl_group_shrink";
  return guarded([&] {
    clear(kCall, "rest", rest);
    mccl::Group& whole = group_of(kCall, group);
    std::optional<std::chrono::milliseconds> timeout;
    if (timeout_ms != 0) timeout = limit_of(timeout_ms, {});
    hand_out(rest, whole.shrink(timeout));
  });
}

mccl_status mccl_group_abort(mccl_group* group, const char* reason) noexcept {
  constexpr const char* kCall = "mccl_group_abort";
  return guarded([&] { group_of(kCall, group).abort(text_of(kCall, "reason", reason)); });
}

mccl_status mccl_group_failure(const mccl_group* group, char* text, size_t capacity,
                               size_t* length) noexcept {
  constexpr const char* kCall = "mccl_group_failure";
  return guarded(
      [&] { copy_text(kCall, group_of(kCall, group).failure(), text, capacity, length); });
}

void mccl_group_destroy(mccl_group* group) noexcept { destroy("mccl_group_destroy", group); }

namespace mccl::c_api {
namespace {

struct Begun {
  std::weak_ptr<Group> group;  ///< Expired if the group was destroyed before the batch ended.
  std::shared_ptr<std::atomic<bool>> started;
};

/// The open batches of this thread, recorded here because a Group does not report whether it has an
/// open batch.
thread_local std::vector<Begun> begun;

auto found(const std::shared_ptr<Group>& group) {
  return std::ranges::find_if(begun, [&](const Begun& one) { return one.group.lock() == group; });
}

}  // namespace

std::shared_ptr<const std::atomic<bool>> coalescing_on(const std::shared_ptr<Group>& group) {
  const auto here = found(group);
  return here == begun.end() ? nullptr : here->started;
}

}  // namespace mccl::c_api

mccl_status mccl_begin_coalescing(mccl_group* group) noexcept {
  return guarded([&] {
    mccl::Group& target = group_of("mccl_begin_coalescing", group);
    std::erase_if(begun, [](const Begun& one) { return one.group.expired(); });
    // The entry is allocated first, so that nothing can fail after the group has begun its batch.
    Begun entry{group->value, std::make_shared<std::atomic<bool>>(false)};
    begun.reserve(begun.size() + 1);
    target.begin_coalescing();
    begun.push_back(std::move(entry));
  });
}

mccl_status mccl_end_coalescing(mccl_group* group, mccl_work** work) noexcept {
  return guarded([&] {
    if (work) *work = nullptr;
    mccl::Group& target = group_of("mccl_end_coalescing", group);
    std::unique_ptr<mccl_work> handle = work ? new_work(group->value) : nullptr;
    const auto here = found(group->value);
    if (here != begun.end()) {
      // If the next call throws, the calls of the batch have ended with its error.
      *here->started = true;
      begun.erase(here);
    }
    const mccl::Work all = target.end_coalescing();
    if (!handle) {
      all.wait();
      return;
    }
    handle->value = all;
    *work = handle.release();
  });
}
