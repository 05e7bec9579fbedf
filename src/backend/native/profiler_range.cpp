#include "backend/native/profiler_range.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <cstdint>

namespace mccl::native {
namespace {

/// Returns MCCL's NVTX domain; null if no profiler runs.
nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("mccl");
  return domain;
}

}  // namespace

bool ProfilerRange::begin(const engine::Request& request) noexcept {
  if (domain() == nullptr) {
    may_be_shown_.store(false, std::memory_order_relaxed);
    return false;
  }
  nvtxEventAttributes_t range = {};
  range.version = NVTX_VERSION;
  range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  range.messageType = NVTX_MESSAGE_TYPE_ASCII;
  range.message.ascii = name_of(request.call.collective).data();
  range.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
  range.payload.ullValue = std::max<std::uint64_t>(request.in.bytes(), request.out.bytes());
  nvtxDomainRangePushEx(domain(), &range);
  return true;
}

void ProfilerRange::end() noexcept { nvtxDomainRangePop(domain()); }

}  // namespace mccl::native

#else

namespace mccl::native {

bool ProfilerRange::begin(const engine::Request&) noexcept {
  may_be_shown_.store(false, std::memory_order_relaxed);
  return false;
}
void ProfilerRange::end() noexcept {}

}  // namespace mccl::native

#endif
