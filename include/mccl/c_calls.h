/* The second half of mccl/c.h, which includes it: groups, the calls that they take, and works. */
#ifndef MCCL_C_CALLS_H
#define MCCL_C_CALLS_H

#include "mccl/c.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Groups -------------------------------------------------------------------------------- */

MCCL_API int32_t mccl_group_rank(const mccl_group* group) MCCL_NOEXCEPT;
MCCL_API int32_t mccl_group_size(const mccl_group* group) MCCL_NOEXCEPT;
/* Lives as long as the handle; NULL for NULL or a handle of another kind. */
MCCL_API const char* mccl_group_name(const mccl_group* group) MCCL_NOEXCEPT;
/* A collective, and it blocks: ranks of one color form a group, ordered by (key, rank). A negative
 * color gives NULL, with MCCL_OK. */
MCCL_API mccl_status mccl_group_split(mccl_group* group, int32_t color, int32_t key,
                                      mccl_group** part) MCCL_NOEXCEPT;
/* Fails everything pending and to come, here and on the other ranks, with `reason`. Returns at
 * once, whatever other threads wait for. */
MCCL_API mccl_status mccl_group_abort(mccl_group* group, const char* reason) MCCL_NOEXCEPT;
/* Why the group failed; "" while it is healthy. */
MCCL_API mccl_status mccl_group_failure(const mccl_group* group, char* text, size_t capacity,
                                        size_t* length) MCCL_NOEXCEPT;
/* Ends the group on this rank when the handles of its works are destroyed too; calls that are still
 * pending then fail with MCCL_ERROR_ABORTED. The group of all ranks ends with its context only. */
MCCL_API void mccl_group_destroy(mccl_group* group) MCCL_NOEXCEPT;

/* ---- Collectives --------------------------------------------------------------------------- */

/* Collectives of a group match across ranks by order of call, which threads of one rank must agree
 * on themselves; messages by (source, tag), independently of the collectives.
 *
 * `options` may be NULL. With `work` NULL a call blocks until it is done and returns what became of
 * it. Otherwise it returns at once with a work to wait for. Wrong arguments fail the function
 * itself, before anything is sent; what goes wrong later is the work's. After a failure other than
 * MCCL_ERROR_INVALID_ARGUMENT the group stays failed: every later call fails with the first reason.
 *
 * `in` and `out` may be the same memory where a call takes both, but for all_to_all: for gathers
 * `in` may be this rank's own place in `out`, for scatters `out` its own place in `in`. They must
 * not overlap otherwise. Arrays of counts have one number for each rank of the group, and are the
 * same on all ranks but for all_to_allv. Device memory is not taken. */

/* out = the reduction of all ranks' in; `count` elements each. */
MCCL_API mccl_status mccl_all_reduce(mccl_group* group, const void* in, void* out, size_t count,
                                     mccl_dtype dtype, mccl_reduce_op op,
                                     const mccl_call_options* options,
                                     mccl_work** work) MCCL_NOEXCEPT;
/* The bytes in which a rank's `count` elements travel to be summed by such an all_reduce. Since
 * version 2. */
MCCL_API mccl_status mccl_group_bytes_to_sum(const mccl_group* group, size_t count,
                                             mccl_dtype dtype, mccl_reduce_op op,
                                             const mccl_call_options* options,
                                             size_t* bytes) MCCL_NOEXCEPT;
/* Everyone's `data` becomes root's. */
MCCL_API mccl_status mccl_broadcast(mccl_group* group, void* data, size_t count, mccl_dtype dtype,
                                    int32_t root, const mccl_call_options* options,
                                    mccl_work** work) MCCL_NOEXCEPT;
/* As all_reduce, but only root's `out` is written; that of others is not looked at. */
MCCL_API mccl_status mccl_reduce(mccl_group* group, const void* in, void* out, size_t count,
                                 mccl_dtype dtype, mccl_reduce_op op, int32_t root,
                                 const mccl_call_options* options, mccl_work** work) MCCL_NOEXCEPT;
/* out = every rank's `count` elements, in rank order. */
MCCL_API mccl_status mccl_all_gather(mccl_group* group, const void* in, void* out, size_t count,
                                     mccl_dtype dtype, const mccl_call_options* options,
                                     mccl_work** work) MCCL_NOEXCEPT;
/* The same where rank i gives counts[i] elements. */
MCCL_API mccl_status mccl_all_gatherv(mccl_group* group, const void* in, void* out,
                                      const size_t* counts, mccl_dtype dtype,
                                      const mccl_call_options* options,
                                      mccl_work** work) MCCL_NOEXCEPT;
/* As all_gather, on root only; others' `out` is not looked at. */
MCCL_API mccl_status mccl_gather(mccl_group* group, const void* in, void* out, size_t count,
                                 mccl_dtype dtype, int32_t root, const mccl_call_options* options,
                                 mccl_work** work) MCCL_NOEXCEPT;
MCCL_API mccl_status mccl_gatherv(mccl_group* group, const void* in, void* out,
                                  const size_t* counts, mccl_dtype dtype, int32_t root,
                                  const mccl_call_options* options, mccl_work** work) MCCL_NOEXCEPT;
/* out = this rank's `count` elements of root's in; others' `in` is not looked at. */
MCCL_API mccl_status mccl_scatter(mccl_group* group, const void* in, void* out, size_t count,
                                  mccl_dtype dtype, int32_t root, const mccl_call_options* options,
                                  mccl_work** work) MCCL_NOEXCEPT;
MCCL_API mccl_status mccl_scatterv(mccl_group* group, const void* in, void* out,
                                   const size_t* counts, mccl_dtype dtype, int32_t root,
                                   const mccl_call_options* options,
                                   mccl_work** work) MCCL_NOEXCEPT;
/* out = this rank's `count` elements of the reduction of all ranks' in, which has count * size. */
MCCL_API mccl_status mccl_reduce_scatter(mccl_group* group, const void* in, void* out, size_t count,
                                         mccl_dtype dtype, mccl_reduce_op op,
                                         const mccl_call_options* options,
                                         mccl_work** work) MCCL_NOEXCEPT;
MCCL_API mccl_status mccl_reduce_scatterv(mccl_group* group, const void* in, void* out,
                                          const size_t* counts, mccl_dtype dtype, mccl_reduce_op op,
                                          const mccl_call_options* options,
                                          mccl_work** work) MCCL_NOEXCEPT;
/* Part j of in goes to rank j; part i of out comes from rank i; each part has `count` elements. */
MCCL_API mccl_status mccl_all_to_all(mccl_group* group, const void* in, void* out, size_t count,
                                     mccl_dtype dtype, const mccl_call_options* options,
                                     mccl_work** work) MCCL_NOEXCEPT;
MCCL_API mccl_status mccl_all_to_allv(mccl_group* group, const void* in, const size_t* in_counts,
                                      void* out, const size_t* out_counts, mccl_dtype dtype,
                                      const mccl_call_options* options,
                                      mccl_work** work) MCCL_NOEXCEPT;
/* Done when every rank has called it. */
MCCL_API mccl_status mccl_barrier(mccl_group* group, const mccl_call_options* options,
                                  mccl_work** work) MCCL_NOEXCEPT;

/* ---- Messages ------------------------------------------------------------------------------ */

#define MCCL_ANY_SOURCE (-1)

/* A message to `peer`; done when `data` may be reused. */
MCCL_API mccl_status mccl_send(mccl_group* group, const void* data, size_t count, mccl_dtype dtype,
                               int32_t peer, uint32_t tag, const mccl_call_options* options,
                               mccl_work** work) MCCL_NOEXCEPT;
/* The oldest message from `peer` (or MCCL_ANY_SOURCE) with this tag; its size must match. */
MCCL_API mccl_status mccl_recv(mccl_group* group, void* data, size_t count, mccl_dtype dtype,
                               int32_t peer, uint32_t tag, const mccl_call_options* options,
                               mccl_work** work) MCCL_NOEXCEPT;

/* ---- Several calls at once ----------------------------------------------------------------- */

/* Calls made between begin and end on this thread start together when end is called, as one work.
 * Pairs do not nest. A call in between with `work` NULL does not block; a work that it gives may
 * be waited for after the end. mccl_group_split() is none of them. */
MCCL_API mccl_status mccl_begin_coalescing(mccl_group* group) MCCL_NOEXCEPT;
/* Blocks when `work` is NULL. */
MCCL_API mccl_status mccl_end_coalescing(mccl_group* group, mccl_work** work) MCCL_NOEXCEPT;

/* ---- Works --------------------------------------------------------------------------------- */

/* Runs when a call is done, on the thread that finishes it. `error` is "" on success and lives as
 * long as the callback runs. It may destroy the work; it must return soon, not block on another
 * call of the same context, and throw nothing: nothing else of the context moves meanwhile, and
 * when it lasts longer than the setting liveness_interval the other ranks give this one up. */
typedef void (*mccl_callback)(void* user, mccl_status status, const char* error);

/* Blocks until the call is done, and helps it along; returns what became of it, however often it is
 * asked. When timeout_ms (0: none but the call's own) passes first, the status is
 * MCCL_ERROR_TIMEOUT while mccl_work_test() still tells 0: the call goes on until its own timeout.
 */
MCCL_API mccl_status mccl_work_wait(const mccl_work* work, int64_t timeout_ms) MCCL_NOEXCEPT;
/* `*done` is 1 when the call is done, else 0. The status is what became of it once it is done. */
MCCL_API mccl_status mccl_work_test(const mccl_work* work, int32_t* done) MCCL_NOEXCEPT;
/* What the call failed with; "" while it runs and when it succeeded. */
MCCL_API mccl_status mccl_work_error(const mccl_work* work, char* text, size_t capacity,
                                     size_t* length) MCCL_NOEXCEPT;
/* The rank that a receive got its message from; -1 until done, and for other calls. */
MCCL_API int32_t mccl_work_source(const mccl_work* work) MCCL_NOEXCEPT;
/* Runs `callback` with `user` once the call is done: at once, on this thread, if it is. */
MCCL_API mccl_status mccl_work_on_done(const mccl_work* work, mccl_callback callback,
                                       void* user) MCCL_NOEXCEPT;
/* A work that is done when all `count` works are, and fails with the first error among them. They
 * stay the caller's. */
MCCL_API mccl_status mccl_work_all(const mccl_work* const* works, size_t count,
                                   mccl_work** all) MCCL_NOEXCEPT;
/* Frees the handle, at any time. The call goes on, and so does its need of the caller's memory. */
MCCL_API void mccl_work_destroy(mccl_work* work) MCCL_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif /* MCCL_C_CALLS_H */
