#include "mccl/store.h"

#include <chrono>

#include "c_api/handles.h"
#include "c_api/options.h"
#include "mccl/c.h"
#include "mccl/error.h"

using namespace mccl::c_api;

namespace {

constexpr std::chrono::seconds kDefaultPatience{60};
/// Time limit used for "no limit", which a store does not support.
constexpr std::chrono::hours kForEver{24 * 365};

std::chrono::milliseconds patience_of(std::int64_t timeout_ms) {
  const std::chrono::milliseconds limit = limit_of(timeout_ms, kDefaultPatience);
  return limit.count() > 0 ? limit : std::chrono::milliseconds(kForEver);
}

mccl::Store& store_of(const char* call, mccl_store* store) {
  return *checked(call, "store", store).value;
}

}  // namespace

mccl_status mccl_store_memory(mccl_store** store) noexcept {
  return guarded([&] {
    clear("mccl_store_memory", "store", store);
    hand_out(store, mccl::make_memory_store());
  });
}

mccl_status mccl_store_tcp(const char* address, int32_t rank, const char* job_key,
                           int64_t timeout_ms, mccl_store** store) noexcept {
  constexpr const char* kCall = "mccl_store_tcp";
  return guarded([&] {
    clear(kCall, "store", store);
    require(kCall, "address", address);
    if (rank < 0) {
      throw mccl::InvalidArgument(
          "mccl_store_tcp: rank is " + std::to_string(rank) +
          "; expected 0 for the rank that serves the store, or a positive rank");
    }
    hand_out(store,
             mccl::make_tcp_store(address, rank, job_key ? job_key : "", patience_of(timeout_ms)));
  });
}

mccl_status mccl_store_set(mccl_store* store, const char* key, const void* value,
                           size_t bytes) noexcept {
  constexpr const char* kCall = "mccl_store_set";
  return guarded([&] {
    mccl::Store& target = store_of(kCall, store);
    require(kCall, "key", key);
    if (bytes > 0) require(kCall, "value", value);
    target.set(key, {static_cast<const char*>(value), bytes});
  });
}

mccl_status mccl_store_get(mccl_store* store, const char* key, int64_t timeout_ms, void* value,
                           size_t capacity, size_t* bytes) noexcept {
  constexpr const char* kCall = "mccl_store_get";
  return guarded([&] {
    if (bytes) *bytes = 0;
    mccl::Store& source = store_of(kCall, store);
    require(kCall, "key", key);
    if (capacity > 0) require(kCall, "value", value);
    copy_bytes(kCall, source.get(key, patience_of(timeout_ms)), value, capacity, bytes);
  });
}

mccl_status mccl_store_add(mccl_store* store, const char* key, int64_t amount,
                           int64_t* sum) noexcept {
  constexpr const char* kCall = "mccl_store_add";
  return guarded([&] {
    if (sum) *sum = 0;
    mccl::Store& target = store_of(kCall, store);
    require(kCall, "key", key);
    const std::int64_t added = target.add(key, amount);
    if (sum) *sum = added;
  });
}

void mccl_store_destroy(mccl_store* store) noexcept { destroy("mccl_store_destroy", store); }
