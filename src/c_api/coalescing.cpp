// Batches of calls that start together.
#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "c_api/handles.h"
#include "c_api/submit.h"
#include "mccl/c.h"
#include "mccl/group.h"

namespace mccl::c_api {
namespace {

struct Begun {
  std::weak_ptr<Group> group;  ///< Expired if the group was destroyed before the batch ended.
  std::shared_ptr<std::atomic<bool>> started;
};

/// The open batches of this thread. They are recorded here because the groups do not report them.
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

using namespace mccl::c_api;

mccl_status mccl_begin_coalescing(mccl_group* group) noexcept {
  return guarded([&] {
    mccl::Group& target = group_of("mccl_begin_coalescing", group);
    std::erase_if(begun, [](const Begun& one) { return one.group.expired(); });
    // Allocated first, so that nothing can fail after the group has begun its batch.
    Begun entry{group->group, std::make_shared<std::atomic<bool>>(false)};
    begun.reserve(begun.size() + 1);
    target.begin_coalescing();
    begun.push_back(std::move(entry));
  });
}

mccl_status mccl_end_coalescing(mccl_group* group, mccl_work** work) noexcept {
  return guarded([&] {
    if (work) *work = nullptr;
    mccl::Group& target = group_of("mccl_end_coalescing", group);
    std::unique_ptr<mccl_work> handle = work ? new_work(group->group) : nullptr;
    const auto here = found(group->group);
    std::shared_ptr<std::atomic<bool>> started;
    if (here != begun.end()) {
      started = std::move(here->started);
      begun.erase(here);
    }
    const mccl::Work all = target.end_coalescing();
    if (started) *started = true;
    if (!handle) {
      all.wait();
      return;
    }
    handle->work = all;
    *work = handle.release();
  });
}
