// Defines the opaque types of mccl/c.h, and checks handles.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "c_api/boundary.h"
#include "mccl/c.h"
#include "mccl/config.h"
#include "mccl/context.h"
#include "mccl/group.h"
#include "mccl/store.h"
#include "mccl/work.h"

namespace mccl::c_api {

/// The first word of every handle, which identifies its type. The library checks it, because
/// languages that pass every handle as a `void*` cannot check the type.
enum class HandleKind : std::uint32_t {
  config = 0x4343'0001,
  store = 0x4343'0002,
  context = 0x4343'0003,
  group = 0x4343'0004,
  work = 0x4343'0005,
  memory = 0x4343'0006,
};

/// Throws InvalidArgument if `found` differs from `expected`; the message names both types.
void check_kind(const char* call, const char* argument, HandleKind found, HandleKind expected);

/// A handle that owns one value.
template <HandleKind kOwn, typename Value>
struct Handle {
  static constexpr HandleKind kKind = kOwn;
  HandleKind kind = kKind;
  Value value;
};

}  // namespace mccl::c_api

struct mccl_config : mccl::c_api::Handle<mccl::c_api::HandleKind::config, mccl::Config> {};
struct mccl_store
    : mccl::c_api::Handle<mccl::c_api::HandleKind::store, std::shared_ptr<mccl::Store>> {};
struct mccl_context
    : mccl::c_api::Handle<mccl::c_api::HandleKind::context, std::shared_ptr<mccl::Context>> {};
struct mccl_group
    : mccl::c_api::Handle<mccl::c_api::HandleKind::group, std::shared_ptr<mccl::Group>> {};

struct mccl_memory
    : mccl::c_api::Handle<mccl::c_api::HandleKind::memory, std::shared_ptr<std::byte>> {};

struct mccl_work : mccl::c_api::Handle<mccl::c_api::HandleKind::work, mccl::Work> {
  /// The groups of the call, kept alive by the handle. Destroying a group ends its calls, and a
  /// garbage-collected language may destroy a group before the handles of its calls.
  std::vector<std::shared_ptr<mccl::Group>> groups;
  /// Becomes true when mccl_end_coalescing() starts the call. Null for a call outside a batch.
  std::shared_ptr<const std::atomic<bool>> started;
};

namespace mccl::c_api {

/// Returns `*handle`. Throws InvalidArgument if `handle` is null or of another type than `Of`.
template <typename Of>
Of& checked(const char* call, const char* argument, Of* handle) {
  require(call, argument, handle);
  check_kind(call, argument, handle->kind, Of::kKind);
  return *handle;
}

/// Sets `*out` to a new handle that owns `value`. The caller must destroy the handle.
template <typename Of, typename Value>
void hand_out(Of** out, Value value) {
  auto handle = std::make_unique<Of>();
  handle->value = std::move(value);
  *out = handle.release();
}

/// Destroys a handle; no-op for null. A handle of another type is not destroyed, and the error is
/// available only from mccl_last_error(), because the C functions that destroy return no status.
template <typename Of>
void destroy(const char* call, Of* handle) noexcept {
  if (!handle) return;
  guarded([&] {
    checked(call, "the handle", handle);
    delete handle;
  });
}

}  // namespace mccl::c_api
