#include "c_api/options.h"
#include "c_api/submit.h"
#include "mccl/c.h"
#include "mccl/group.h"

using namespace mccl::c_api;

mccl_status mccl_send(mccl_group* group, const void* data, size_t count, mccl_dtype dtype,
                      int32_t peer, uint32_t tag, const mccl_call_options* options,
                      mccl_work** work) noexcept {
  constexpr const char* kCall = "mccl_send";
  return submit(kCall, group, options, work, [&](mccl::Group& target, const Options& read) {
    refuse_options_of_sums(kCall, read);
    return target.send({data, count, dtype_of(kCall, dtype)}, peer, tag, read.call);
  });
}

mccl_status mccl_recv(mccl_group* group, void* data, size_t count, mccl_dtype dtype, int32_t peer,
                      uint32_t tag, const mccl_call_options* options, mccl_work** work) noexcept {
  constexpr const char* kCall = "mccl_recv";
  return submit(kCall, group, options, work, [&](mccl::Group& target, const Options& read) {
    refuse_options_of_sums(kCall, read);
    return target.recv({data, count, dtype_of(kCall, dtype)}, peer, tag, read.call);
  });
}
