// What lies behind the opaque types of mccl/c.h, and how a function gets at it.
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

/// The first word of every handle. Languages that know only `void*` swap handles easily, and that
/// must be an error.
enum class Kind : std::uint32_t {
  config = 0x4343'0001,
  store = 0x4343'0002,
  context = 0x4343'0003,
  group = 0x4343'0004,
  work = 0x4343'0005,
};

/// Throws InvalidArgument that names what was expected and what was found.
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
  /// Whose call it is: a language that collects garbage may let go of a group before its works, and
  /// the end of a group ends its calls.
  std::vector<std::shared_ptr<mccl::Group>> groups;
  /// For a call that starts at mccl_end_coalescing: whether it has. Null for one that started at
  /// once.
  std::shared_ptr<const std::atomic<bool>> started;
};

namespace mccl::c_api {

/// The handle, checked.
template <typename Handle>
Handle& checked(const char* call, const char* argument, Handle* handle) {
  require(call, argument, handle);
  check_kind(call, argument, handle->kind, Handle::kKind);
  return *handle;
}

/// Ends a handle. There is no status to return, so a handle of another kind is left alone, and said
/// to be in mccl_last_error().
template <typename Handle>
void destroy(const char* call, Handle* handle) noexcept {
  if (!handle) return;
  guarded([&] {
    checked(call, "the handle", handle);
    delete handle;
  });
}

}  // namespace mccl::c_api
