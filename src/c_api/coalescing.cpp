// Calls that start together.
#include <algorithm>
#include <memory>
#include <vector>

#include "c_api/handles.h"
#include "c_api/submit.h"
#include "mccl/c.h"
#include "mccl/group.h"

namespace mccl::c_api {
namespace {

/// Where this thread has begun: the group knows, but does not tell. One that was destroyed without
/// an end is expired, and matches none.
thread_local std::vector<std::weak_ptr<Group>> begun;

bool is(const std::weak_ptr<Group>& known, const std::shared_ptr<Group>& group) {
  return known.lock() == group;
}

}  // namespace

bool is_coalescing(const std::shared_ptr<Group>& group) {
  return std::ranges::any_of(begun, [&](const auto& known) { return is(known, group); });
}

}  // namespace mccl::c_api

using namespace mccl::c_api;

mccl_status mccl_begin_coalescing(mccl_group* group) noexcept {
  return guarded([&] {
    mccl::Group& target = group_of("mccl_begin_coalescing", group);
    std::erase_if(begun, [](const auto& known) { return known.expired(); });
    begun.reserve(begun.size() + 1);  // so that nothing fails once the group has begun
    target.begin_coalescing();
    begun.emplace_back(group->group);
  });
}

mccl_status mccl_end_coalescing(mccl_group* group, mccl_work** work) noexcept {
  return guarded([&] {
    if (work) *work = nullptr;
    mccl::Group& target = group_of("mccl_end_coalescing", group);
    std::unique_ptr<mccl_work> handle = work ? new_work(group->group) : nullptr;
    std::erase_if(begun, [&](const auto& known) { return is(known, group->group); });
    const mccl::Work all = target.end_coalescing();
    if (!handle) {
      all.wait();
      return;
    }
    handle->work = all;
    *work = handle.release();
  });
}
