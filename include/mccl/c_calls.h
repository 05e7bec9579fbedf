/* The second half of the C interface: groups, their calls, and works. mccl/c.h includes it. */
#ifndef MCCL_C_CALLS_H
#define MCCL_C_CALLS_H

#include "mccl/c.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Groups -------------------------------------------------------------------------------- */

/* This process's rank in the group; -1 for NULL or a handle of another kind. */
MCCL_API int32_t mccl_group_rank(const mccl_group* group) MCCL_NOEXCEPT;
/* The number of ranks of the group; -1 for NULL or a handle of another kind. */
MCCL_API int32_t mccl_group_size(const mccl_group* group) MCCL_NOEXCEPT;
/* The name of the group. The text is valid as long as the handle. Returns NULL if `group` is NULL
 * or a handle of another kind. */
MCCL_API const char* mccl_group_name(const mccl_group* group) MCCL_NOEXCEPT;
/* Splits the group: ranks of one color form a new group, ordered by (key, rank). All ranks must
 * make this call; it blocks until every rank has made it. A rank with a negative color joins no
 * group: it receives NULL with MCCL_OK. */
MCCL_API mccl_status mccl_group_split(mccl_group* group, int32_t color, int32_t key,
                                      mccl_group** part) MCCL_NOEXCEPT;
/* Creates a group of the ranks that remain after others have died, in the order of their old ranks.
 * All remaining ranks must call this. It blocks until they have agreed on the members, for at most
 * timeout_ms (0: the group's timeout; negative: no limit). The old group does not change.
 * MCCL_ERROR_PEER means that this rank must not continue: the other ranks continue without it, or
 * it can reach too few of the ranks that may still be alive. */
MCCL_API mccl_status mccl_group_shrink(mccl_group* group, int64_t timeout_ms,
                                       mccl_group** rest) MCCL_NOEXCEPT;
/* Fails all pending and later calls with `reason`, here and on the other ranks. Returns
 * immediately, even if other threads are blocked in calls. */
MCCL_API mccl_status mccl_group_abort(mccl_group* group, const char* reason) MCCL_NOEXCEPT;
/* Copies out the reason why the group failed; "" while it is healthy. */
MCCL_API mccl_status mccl_group_failure(const mccl_group* group, char* text, size_t capacity,
                                        size_t* length) MCCL_NOEXCEPT;
/* Frees the handle. The group ends on this rank once the handles of its works are destroyed, too.
 * Calls that are still pending then fail with MCCL_ERROR_ABORTED. The group of all ranks ends only
 * with its context. */
MCCL_API void mccl_group_destroy(mccl_group* group) MCCL_NOEXCEPT;

/* ---- Collectives --------------------------------------------------------------------------- */

/* Collectives of a group match across ranks by the order of the calls. If several threads call
 * collectives of one group, the program must give the calls the same order on all ranks. Messages
 * match by (source, tag), independently of the collectives.
 *
 * `options` may be NULL. If `work` is NULL, a call blocks until it is done and returns its outcome.
 * Otherwise it returns at once with a work to wait for. If an argument is invalid, the function
 * itself fails, before anything is sent; the work reports later errors. After a failure other than
 * MCCL_ERROR_INVALID_ARGUMENT the group stays failed: every later call fails for the same reason.
 *
 * `in` and `out` may be the same memory if a call takes both, except for all_to_all and
 * all_to_allv. In a gather, `in` may be this rank's slot of `out`. In a scatter, `out` may be this
 * rank's slot of `in`. Otherwise `in` and `out` must not overlap. Arrays of counts have one number
 * per rank of the group. The numbers are the same on all ranks, except for all_to_allv. All memory
 * must be host memory. */

/* out = the reduction of the inputs of all ranks. `in` and `out` have `count` elements each. */
MCCL_API mccl_status mccl_all_reduce(mccl_group* group, const void* in, void* out, size_t count,
                                     mccl_dtype dtype, mccl_reduce_op op,
                                     const mccl_call_options* options,
                                     mccl_work** work) MCCL_NOEXCEPT;
/* `*bytes` receives the number of bytes that `count` elements occupy on the wire in an all_reduce
 * with these arguments: their compressed size if a codec applies. Since version 2. */
MCCL_API mccl_status mccl_group_bytes_to_sum(const mccl_group* group, size_t count,
                                             mccl_dtype dtype, mccl_reduce_op op,
                                             const mccl_call_options* options,
                                             size_t* bytes) MCCL_NOEXCEPT;
/* Copies root's `data`, `count` elements, into `data` of every other rank. */
MCCL_API mccl_status mccl_broadcast(mccl_group* group, void* data, size_t count, mccl_dtype dtype,
                                    int32_t root, const mccl_call_options* options,
                                    mccl_work** work) MCCL_NOEXCEPT;
/* Like mccl_all_reduce(), but only root's `out` is written; other ranks' `out` is ignored. */
MCCL_API mccl_status mccl_reduce(mccl_group* group, const void* in, void* out, size_t count,
                                 mccl_dtype dtype, mccl_reduce_op op, int32_t root,
                                 const mccl_call_options* options, mccl_work** work) MCCL_NOEXCEPT;
/* out = the `count` elements of every rank, in rank order; `out` has count * size elements. */
MCCL_API mccl_status mccl_all_gather(mccl_group* group, const void* in, void* out, size_t count,
                                     mccl_dtype dtype, const mccl_call_options* options,
                                     mccl_work** work) MCCL_NOEXCEPT;
/* Like mccl_all_gather(), but rank i contributes counts[i] elements. */
MCCL_API mccl_status mccl_all_gatherv(mccl_group* group, const void* in, void* out,
                                      const size_t* counts, mccl_dtype dtype,
                                      const mccl_call_options* options,
                                      mccl_work** work) MCCL_NOEXCEPT;
/* Like mccl_all_gather(), but only root's `out` is written; other ranks' `out` is ignored. */
MCCL_API mccl_status mccl_gather(mccl_group* group, const void* in, void* out, size_t count,
                                 mccl_dtype dtype, int32_t root, const mccl_call_options* options,
                                 mccl_work** work) MCCL_NOEXCEPT;
/* Like mccl_gather(), but rank i contributes counts[i] elements. */
MCCL_API mccl_status mccl_gatherv(mccl_group* group, const void* in, void* out,
                                  const size_t* counts, mccl_dtype dtype, int32_t root,
                                  const mccl_call_options* options, mccl_work** work) MCCL_NOEXCEPT;
/* out = this rank's `count` elements of root's `in`, which has count * size elements. Other ranks'
 * `in` is ignored. */
MCCL_API mccl_status mccl_scatter(mccl_group* group, const void* in, void* out, size_t count,
                                  mccl_dtype dtype, int32_t root, const mccl_call_options* options,
                                  mccl_work** work) MCCL_NOEXCEPT;
/* Like mccl_scatter(), but rank i receives counts[i] elements. */
MCCL_API mccl_status mccl_scatterv(mccl_group* group, const void* in, void* out,
                                   const size_t* counts, mccl_dtype dtype, int32_t root,
                                   const mccl_call_options* options,
                                   mccl_work** work) MCCL_NOEXCEPT;
/* out = this rank's `count` elements of the reduction of all inputs. Each input has count * size
 * elements. */
MCCL_API mccl_status mccl_reduce_scatter(mccl_group* group, const void* in, void* out, size_t count,
                                         mccl_dtype dtype, mccl_reduce_op op,
                                         const mccl_call_options* options,
                                         mccl_work** work) MCCL_NOEXCEPT;
/* Like mccl_reduce_scatter(), but rank i receives counts[i] elements. */
MCCL_API mccl_status mccl_reduce_scatterv(mccl_group* group, const void* in, void* out,
                                          const size_t* counts, mccl_dtype dtype, mccl_reduce_op op,
                                          const mccl_call_options* options,
                                          mccl_work** work) MCCL_NOEXCEPT;
/* Sends part j of `in` to rank j and receives part i of `out` from rank i. Each part has `count`
 * elements. */
MCCL_API mccl_status mccl_all_to_all(mccl_group* group, const void* in, void* out, size_t count,
                                     mccl_dtype dtype, const mccl_call_options* options,
                                     mccl_work** work) MCCL_NOEXCEPT;
/* Like mccl_all_to_all(), but part j of `in` has in_counts[j] elements and part i of `out` has
 * out_counts[i] elements. */
MCCL_API mccl_status mccl_all_to_allv(mccl_group* group, const void* in, const size_t* in_counts,
                                      void* out, const size_t* out_counts, mccl_dtype dtype,
                                      const mccl_call_options* options,
                                      mccl_work** work) MCCL_NOEXCEPT;
/* Completes once every rank has made this call. */
MCCL_API mccl_status mccl_barrier(mccl_group* group, const mccl_call_options* options,
                                  mccl_work** work) MCCL_NOEXCEPT;

/* ---- Messages ------------------------------------------------------------------------------ */

/* Value of `peer` with which mccl_recv() accepts a message from any rank. */
#define MCCL_ANY_SOURCE (-1)

/* Sends a message to `peer`, another rank of the group. Completes once `data` may be reused. */
MCCL_API mccl_status mccl_send(mccl_group* group, const void* data, size_t count, mccl_dtype dtype,
                               int32_t peer, uint32_t tag, const mccl_call_options* options,
                               mccl_work** work) MCCL_NOEXCEPT;
/* Receives the oldest message from `peer` (or MCCL_ANY_SOURCE) with this tag. The size of the
 * message must be equal to that of `data`. */
MCCL_API mccl_status mccl_recv(mccl_group* group, void* data, size_t count, mccl_dtype dtype,
                               int32_t peer, uint32_t tag, const mccl_call_options* options,
                               mccl_work** work) MCCL_NOEXCEPT;

/* ---- Several calls at once ----------------------------------------------------------------- */

/* Collects the calls that this thread makes until mccl_end_coalescing(), which starts them together
 * as one work. The two functions must alternate: they do not nest. A collected call does not block,
 * even if its `work` is NULL. Do not wait for the work of a collected call before
 * mccl_end_coalescing(). mccl_group_split() fails while calls are collected. */
MCCL_API mccl_status mccl_begin_coalescing(mccl_group* group) MCCL_NOEXCEPT;
/* Starts the collected calls. Blocks until they are done if `work` is NULL. */
MCCL_API mccl_status mccl_end_coalescing(mccl_group* group, mccl_work** work) MCCL_NOEXCEPT;

/* ---- Works --------------------------------------------------------------------------------- */

/* Callback of a call. It runs once the call is done, on the thread that finishes it. `error` is ""
 * on success and valid while the callback runs. The callback may destroy the work. It must return
 * soon, must not block on another call of the same context and must not throw. All other calls of
 * the context stall until it returns. If it takes longer than the setting liveness_interval, the
 * other ranks treat this rank as dead. */
typedef void (*mccl_callback)(void* user, mccl_status status, const char* error);

/* Blocks until the call is done; meanwhile this thread helps to carry it out. Returns the outcome
 * of the call, and may be called repeatedly. If a positive timeout_ms passes first, the status is
 * MCCL_ERROR_TIMEOUT and mccl_work_test() still reports 0: the call continues until its own
 * timeout. 0 means no limit other than the timeout of the call. */
MCCL_API mccl_status mccl_work_wait(const mccl_work* work, int64_t timeout_ms) MCCL_NOEXCEPT;
/* `*done` receives 1 if the call is done, else 0. Returns the outcome of the call if it is done. */
MCCL_API mccl_status mccl_work_test(const mccl_work* work, int32_t* done) MCCL_NOEXCEPT;
/* Copies out the call's error message; "" while the call runs and if it succeeded. */
MCCL_API mccl_status mccl_work_error(const mccl_work* work, char* text, size_t capacity,
                                     size_t* length) MCCL_NOEXCEPT;
/* Rank that sent the message of a completed mccl_recv(); -1 before it completes, and for any other
 * call. */
MCCL_API int32_t mccl_work_source(const mccl_work* work) MCCL_NOEXCEPT;
/* Runs `callback` with `user` once the call is done. If the call is done already, runs `callback`
 * at once on this thread. */
MCCL_API mccl_status mccl_work_on_done(const mccl_work* work, mccl_callback callback,
                                       void* user) MCCL_NOEXCEPT;
/* Creates a work that stands for all `count` works. It is done once they are all done, and fails
 * with the first error among them. The caller keeps ownership of `works`. */
MCCL_API mccl_status mccl_work_all(const mccl_work* const* works, size_t count,
                                   mccl_work** all) MCCL_NOEXCEPT;
/* Frees the handle; NULL is allowed. May be called before the call is done: the call continues and
 * still uses the caller's buffers. */
MCCL_API void mccl_work_destroy(mccl_work* work) MCCL_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif /* MCCL_C_CALLS_H */
