// The C functions for collectives and messages. Each converts its arguments to buffers and options
// of the C++ interface. The methods of Group check everything that these conversions do not check.
#include "c_api/options.h"
#include "c_api/submit.h"
#include "mccl/c.h"
#include "mccl/group.h"

using namespace mccl::c_api;
using mccl::CallOptions;
using mccl::DType;
using mccl::Group;
using mccl::ReduceOp;

mccl_status mccl_all_reduce(mccl_group* group, const void* in, void* out, size_t count,
                            mccl_dtype dtype, mccl_reduce_op op, const mccl_call_options* options,
                            mccl_work** work) noexcept {
  constexpr const char* kCall = "mccl_all_reduce";
  return submit(kCall, group, options, work, [&](Group& target, const ReadOptions& read) {
    const DType type = dtype_of(kCall, dtype);
    const ReduceOp reduction = reduction_of(kCall, op, read.factor);
    return target.all_reduce({in, count, type}, {out, count, type}, reduction,
                             read.of_sum(count, type));
  });
}

mccl_status mccl_group_bytes_to_sum(const mccl_group* group, size_t count, mccl_dtype dtype,
                                    mccl_reduce_op op, const mccl_call_options* options,
                                    size_t* bytes) noexcept {
  constexpr const char* kCall = "mccl_group_bytes_to_sum";
  return guarded([&] {
    require(kCall, "bytes", bytes);
    *bytes = 0;
    const Group& target = group_of(kCall, group);
    const ReadOptions read = read_options(kCall, options);
    const DType type = dtype_of(kCall, dtype);
    const ReduceOp reduction = reduction_of(kCall, op, read.factor);
    *bytes = target.bytes_to_sum(count, type, reduction, read.of_sum(count, type));
  });
}

mccl_status mccl_broadcast(mccl_group* group, void* data, size_t count, mccl_dtype dtype,
                           int32_t root, const mccl_call_options* options,
                           mccl_work** work) noexcept {
  constexpr const char* kCall = "mccl_broadcast";
  return submit_move(kCall, group, options, work, [&](Group& target, const CallOptions& call) {
    return target.broadcast({data, count, dtype_of(kCall, dtype)}, root, call);
  });
}

mccl_status mccl_reduce(mccl_group* group, const void* in, void* out, size_t count,
                        mccl_dtype dtype, mccl_reduce_op op, int32_t root,
                        const mccl_call_options* options, mccl_work** work) noexcept {
  constexpr const char* kCall = "mccl_reduce";
  return submit(kCall, group, options, work, [&](Group& target, const ReadOptions& read) {
    const DType type = dtype_of(kCall, dtype);
    const ReduceOp reduction = reduction_of(kCall, op, read.factor);
    refuse_left_out(kCall, read);
    return target.reduce({in, count, type}, {out, count, type}, reduction, root, read.call);
  });
}

mccl_status mccl_all_gather(mccl_group* group, const void* in, void* out, size_t count,
                            mccl_dtype dtype, const mccl_call_options* options,
                            mccl_work** work) noexcept {
  constexpr const char* kCall = "mccl_all_gather";
  return submit_move(kCall, group, options, work, [&](Group& target, const CallOptions& call) {
    const DType type = dtype_of(kCall, dtype);
    const std::size_t total = total_of(kCall, count, target);
    return target.all_gather({in, count, type}, {out, total, type}, call);
  });
}

mccl_status mccl_all_gatherv(mccl_group* group, const void* in, void* out, const size_t* counts,
                             mccl_dtype dtype, const mccl_call_options* options,
                             mccl_work** work) noexcept {
  constexpr const char* kCall = "mccl_all_gatherv";
  return submit_move(kCall, group, options, work, [&](Group& target, const CallOptions& call) {
    const DType type = dtype_of(kCall, dtype);
    const Counts parts = counts_of(kCall, "counts", counts, target);
    return target.all_gatherv({in, parts.of(target.rank()), type}, {out, parts.total, type},
                              parts.each, call);
  });
}

mccl_status mccl_gather(mccl_group* group, const void* in, void* out, size_t count,
                        mccl_dtype dtype, int32_t root, const mccl_call_options* options,
                        mccl_work** work) noexcept {
  constexpr const char* kCall = "mccl_gather";
  return submit_move(kCall, group, options, work, [&](Group& target, const CallOptions& call) {
    const DType type = dtype_of(kCall, dtype);
    const std::size_t total = total_of(kCall, count, target);
    return target.gather({in, count, type}, {out, total, type}, root, call);
  });
}

mccl_status mccl_gatherv(mccl_group* group, const void* in, void* out, const size_t* counts,
                         mccl_dtype dtype, int32_t root, const mccl_call_options* options,
                         mccl_work** work) noexcept {
  constexpr const char* kCall = "mccl_gatherv";
  return submit_move(kCall, group, options, work, [&](Group& target, const CallOptions& call) {
    const DType type = dtype_of(kCall, dtype);
    const Counts parts = counts_of(kCall, "counts", counts, target);
    return target.gatherv({in, parts.of(target.rank()), type}, {out, parts.total, type}, parts.each,
                          root, call);
  });
}

mccl_status mccl_scatter(mccl_group* group, const void* in, void* out, size_t count,
                         mccl_dtype dtype, int32_t root, const mccl_call_options* options,
                         mccl_work** work) noexcept {
  constexpr const char* kCall = "mccl_scatter";
  return submit_move(kCall, group, options, work, [&](Group& target, const CallOptions& call) {
    const DType type = dtype_of(kCall, dtype);
    const std::size_t total = total_of(kCall, count, target);
    return target.scatter({in, total, type}, {out, count, type}, root, call);
  });
}

mccl_status mccl_scatterv(mccl_group* group, const void* in, void* out, const size_t* counts,
                          mccl_dtype dtype, int32_t root, const mccl_call_options* options,
                          mccl_work** work) noexcept {
  constexpr const char* kCall = "mccl_scatterv";
  return submit_move(kCall, group, options, work, [&](Group& target, const CallOptions& call) {
    const DType type = dtype_of(kCall, dtype);
    const Counts parts = counts_of(kCall, "counts", counts, target);
    return target.scatterv({in, parts.total, type}, {out, parts.of(target.rank()), type},
                           parts.each, root, call);
  });
}

mccl_status mccl_reduce_scatter(mccl_group* group, const void* in, void* out, size_t count,
                                mccl_dtype dtype, mccl_reduce_op op,
                                const mccl_call_options* options, mccl_work** work) noexcept {
  constexpr const char* kCall = "mccl_reduce_scatter";
  return submit(kCall, group, options, work, [&](Group& target, const ReadOptions& read) {
    const DType type = dtype_of(kCall, dtype);
    const ReduceOp reduction = reduction_of(kCall, op, read.factor);
    const std::size_t total = total_of(kCall, count, target);
    return target.reduce_scatter({in, total, type}, {out, count, type}, reduction,
                                 read.of_sum(total, type));
  });
}

mccl_status mccl_reduce_scatterv(mccl_group* group, const void* in, void* out, const size_t* counts,
                                 mccl_dtype dtype, mccl_reduce_op op,
                                 const mccl_call_options* options, mccl_work** work) noexcept {
  constexpr const char* kCall = "mccl_reduce_scatterv";
  return submit(kCall, group, options, work, [&](Group& target, const ReadOptions& read) {
    const DType type = dtype_of(kCall, dtype);
    const ReduceOp reduction = reduction_of(kCall, op, read.factor);
    const Counts parts = counts_of(kCall, "counts", counts, target);
    return target.reduce_scatterv({in, parts.total, type}, {out, parts.of(target.rank()), type},
                                  parts.each, reduction, read.of_sum(parts.total, type));
  });
}

mccl_status mccl_all_to_all(mccl_group* group, const void* in, void* out, size_t count,
                            mccl_dtype dtype, const mccl_call_options* options,
                            mccl_work** work) noexcept {
  constexpr const char* kCall = "mccl_all_to_all";
  return submit_move(kCall, group, options, work, [&](Group& target, const CallOptions& call) {
    const DType type = dtype_of(kCall, dtype);
    const std::size_t total = total_of(kCall, count, target);
    return target.all_to_all({in, total, type}, {out, total, type}, call);
  });
}

mccl_status mccl_all_to_allv(mccl_group* group, const void* in, const size_t* in_counts, void* out,
                             const size_t* out_counts, mccl_dtype dtype,
                             const mccl_call_options* options, mccl_work** work) noexcept {
  constexpr const char* kCall = "mccl_all_to_allv";
  return submit_move(kCall, group, options, work, [&](Group& target, const CallOptions& call) {
    const DType type = dtype_of(kCall, dtype);
    const Counts given = counts_of(kCall, "in_counts", in_counts, target);
    const Counts taken = counts_of(kCall, "out_counts", out_counts, target);
    return target.all_to_allv({in, given.total, type}, given.each, {out, taken.total, type},
                              taken.each, call);
  });
}

mccl_status mccl_barrier(mccl_group* group, const mccl_call_options* options,
                         mccl_work** work) noexcept {
  constexpr const char* kCall = "mccl_barrier";
  return submit_move(kCall, group, options, work,
                     [&](Group& target, const CallOptions& call) { return target.barrier(call); });
}

mccl_status mccl_send(mccl_group* group, const void* data, size_t count, mccl_dtype dtype,
                      int32_t peer, uint32_t tag, const mccl_call_options* options,
                      mccl_work** work) noexcept {
  constexpr const char* kCall = "mccl_send";
  return submit_move(kCall, group, options, work, [&](Group& target, const CallOptions& call) {
    return target.send({data, count, dtype_of(kCall, dtype)}, peer, tag, call);
  });
}

mccl_status mccl_recv(mccl_group* group, void* data, size_t count, mccl_dtype dtype, int32_t peer,
                      uint32_t tag, const mccl_call_options* options, mccl_work** work) noexcept {
  constexpr const char* kCall = "mccl_recv";
  return submit_move(kCall, group, options, work, [&](Group& target, const CallOptions& call) {
    return target.recv({data, count, dtype_of(kCall, dtype)}, peer, tag, call);
  });
}
