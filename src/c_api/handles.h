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
enum class Kind : std::uint32_t {
  config = 0x4343'0001,
  store = 0x4343'0002,
  context = 0x4343'0003,
  group = 0x4343'0004,
  work = 0x4343'0005,
};

/// Throws InvalidArgument if the kinds differ; the message contains both.
void check_kind(const char* call, const char* argument, Kind found, Kind expected);

}  // namespace mccl::c_api

struct mccl_config {
  static constexpr mccl::c_api::Kind kKind = mccl::c_api::Kind::config;
  mccl::c_api::Kind kind = kKind;
  mccl::Config config;
};

struct mccl_store {
  static constexpr mccl::c_api::Kind kKind = mccl::c_api::Kind::store;
  mccl::c_api::Kind kind = kKind;
  std::shared_ptr<mccl::Store> store;
};

struct mccl_context {
  static constexpr mccl::c_api::Kind kKind = mccl::c_api::Kind::context;
  mccl::c_api::Kind kind = kKind;
  std::shared_ptr<mccl::Context> context;
};

struct mccl_group {
  static constexpr mccl::c_api::Kind kKind = mccl::c_api::Kind::group;
  mccl::c_api::Kind kind = kKind;
  std::shared_ptr<mccl::Group> group;
};

struct mccl_work {
  static constexpr mccl::c_api::Kind kKind = mccl::c_api::Kind::work;
  mccl::c_api::Kind kind = kKind;
  mccl::Work work;
  /// The groups of the call, kept alive by the handle. Destroying a group ends its calls, and a
  /// garbage-collected language may destroy a group before its works.
  std::vector<std::shared_ptr<mccl::Group>> groups;
  /// Becomes true when mccl_end_coalescing starts the call, if it is part of a batch. Null for any
  /// other call.
  std::shared_ptr<const std::atomic<bool>> started;
};

namespace mccl::c_api {

/// Returns the handle. Throws InvalidArgument if it is null or of another kind.
template <typename Handle>
Handle& checked(const char* call, const char* argument, Handle* handle) {
  require(call, argument, handle);
  check_kind(call, argument, handle->kind, Handle::kKind);
  return *handle;
}

/// Destroys a handle. A handle of another kind is not destroyed. The error is then available from
/// mccl_last_error(), because there is no status to return.
template <typename Handle>
void destroy(const char* call, Handle* handle) noexcept {
  if (!handle) return;
  guarded([&] {
    checked(call, "the handle", handle);
    delete handle;
  });
}

}  // namespace mccl::c_api
