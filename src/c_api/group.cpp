#include "mccl/group.h"

#include "c_api/handles.h"
#include "c_api/options.h"
#include "c_api/submit.h"
#include "mccl/c.h"
#include "mccl/error.h"

using namespace mccl::c_api;

int32_t mccl_group_rank(const mccl_group* group) noexcept {
  int32_t rank = -1;
  guarded([&] { rank = group_of("mccl_group_rank", group).rank(); });
  return rank;
}

int32_t mccl_group_size(const mccl_group* group) noexcept {
  int32_t size = -1;
  guarded([&] { size = group_of("mccl_group_size", group).size(); });
  return size;
}

const char* mccl_group_name(const mccl_group* group) noexcept {
  const char* name = nullptr;
  guarded([&] { name = group_of("mccl_group_name", group).name().c_str(); });
  return name;
}

mccl_status mccl_group_split(mccl_group* group, int32_t color, int32_t key,
                             mccl_group** part) noexcept {
  constexpr const char* kCall = "mccl_group_split";
  return guarded([&] {
    clear(kCall, "part", part);
    mccl::Group& whole = group_of(kCall, group);
    if (coalescing_on(group->group)) {
      throw mccl::InvalidArgument(
          "mccl_group_split: this thread has an open batch; call mccl_end_coalescing before the "
          "split");
    }
    auto handle = std::make_unique<mccl_group>();
    handle->group = whole.split(color, key);
    if (handle->group) *part = handle.release();
  });
}

mccl_status mccl_group_shrink(mccl_group* group, int64_t timeout_ms, mccl_group** rest) noexcept {
  constexpr const char* kCall = "mccl_group_shrink";
  return guarded([&] {
    clear(kCall, "rest", rest);
    mccl::Group& whole = group_of(kCall, group);
    std::optional<std::chrono::milliseconds> timeout;
    if (timeout_ms != 0) timeout = limit_of(timeout_ms, {});
    auto handle = std::make_unique<mccl_group>();
    handle->group = whole.shrink(timeout);
    *rest = handle.release();
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
