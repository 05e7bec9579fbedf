// Defines the opaque types of mccl/c.h, and checks handles.
#pragma once

#include <atomic>
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

/// The first word of every handle, which identifies its type. Languages in which every handle is a
/// `void*` cannot check types, so the library does.
enum class HandleKind : std::uint32_t {
  config = 0x4343'0001,
  store = 0x4343'0002,
  context = 0x4343'0003,
  group = 0x4343'0004,
  work = 0x4343'0005,
};

/// Throws InvalidArgument if the kinds differ; the message contains both.
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

struct mccl_work : mccl::c_api::Handle<mccl::c_api::HandleKind::work, mccl::Work> {
  /// The groups of the call, kept alive by the handle. Destroying a group ends its calls, and a
  /// garbage-collected language may destroy a group before its works.
  std::vector<std::shared_ptr<mccl::Group>> groups;
  /// Becomes true when mccl_end_coalescing starts the call, if it is part of a batch. Null for any
  /// other call.
  std::shared_ptr<const std::atomic<bool>> started;
};

namespace mccl::c_api {

/// Returns the handle. Throws InvalidArgument if it is null or of another kind.
template <typename Of>
Of& checked(const char* call, const char* argument, Of* handle) {
  require(call, argument, handle);
  check_kind(call, argument, handle->kind, Of::kKind);
  return *handle;
}

/// Gives the caller a handle that owns the value.
template <typename Of, typename Value>
void hand_out(Of** out, Value value) {
  auto handle = std::make_unique<Of>();
  handle->value = std::move(value);
  *out = handle.release();
}

/// Destroys a handle. A handle of another kind is not destroyed. The error is then available from
/// mccl_last_error(), because there is no status to return.
template <typename Of>
void destroy(const char* call, Of* handle) noexcept {
  if (!handle) return;
  guarded([&] {
    checked(call, "the handle", handle);
    delete handle;
  });
}

}  // namespace mccl::c_api
