/* The C interface: everything that the C++ one has, in plain types, for C and for languages that
 * bind C functions. It needs C99. docs/cpp-and-c.md has an example, and how to build and bind.
 *
 * Errors. A function that can fail returns a mccl_status; what went wrong is then in
 * mccl_last_error() of the same thread. No exception leaves the library, and null pointers, unknown
 * enum values and handles of another kind are MCCL_ERROR_INVALID_ARGUMENT. What a function gives
 * through a pointer is NULL or 0 when it fails.
 *
 * Handles. A handle that a function gives through a pointer belongs to the caller, who ends it with
 * the mccl_..._destroy of its type, once; NULL is allowed there. A handle keeps what it needs: a
 * group outlives its context's handle (its calls then fail with MCCL_ERROR_ABORTED), a context its
 * store's and its configuration's. All functions are thread-safe, on the same handle too, but
 * for a mccl_config that is being changed, and for a handle that is being destroyed.
 *
 * Memory. Counts are in elements, and a buffer may lie at any alignment. It must stay valid until
 * the call is done, not only until its mccl_work is destroyed. It may be NULL where its count is 0,
 * and where a call says so. Everything else that is passed in (text, counts, options, members) is
 * read before the function returns. Text is UTF-8 and ends with a NUL.
 *
 * Text out. `text` has room for `capacity` bytes with the NUL; *length (which may be NULL) is set
 * to the whole length without it. With capacity 0, `text` may be NULL and only the length is told.
 * Where there is too little room, the status is MCCL_ERROR_NO_ROOM and the text is empty.
 *
 * Times are in milliseconds: 0 means the default that is named, a negative number no limit.
 */
#ifndef MCCL_C_H
#define MCCL_C_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define MCCL_NOEXCEPT noexcept
extern "C" {
#else
#define MCCL_NOEXCEPT
#endif
#define MCCL_API __attribute__((visibility("default")))

/* ---- Version ------------------------------------------------------------------------------- */

/* Grows when something is added. A program that was built against an older number runs with a newer
 * library: functions keep their names, arguments and meaning, and values their numbers. */
#define MCCL_C_VERSION 2

/* MCCL_C_VERSION of the library that runs. Less than the header's: the library lacks something. */
MCCL_API uint32_t mccl_c_version(void) MCCL_NOEXCEPT;
/* The release, such as "0.1.0". */
MCCL_API const char* mccl_version(void) MCCL_NOEXCEPT;

/* ---- Status -------------------------------------------------------------------------------- */

/* Values may be added: take an unknown one for MCCL_ERROR_OTHER. (Types of a fixed width hold the
 * enums, whose own width is the compiler's choice.) */
typedef int32_t mccl_status;
enum {
  MCCL_OK = 0,
  /* An argument, setting, file or variable is wrong. Nothing was sent; the group goes on. */
  MCCL_ERROR_INVALID_ARGUMENT = 1,
  /* A call, or a wait, outlived its time. */
  MCCL_ERROR_TIMEOUT = 2,
  /* A peer died, left, or cannot be reached. */
  MCCL_ERROR_PEER = 3,
  /* Ranks called different things, or sent sizes that do not match. */
  MCCL_ERROR_MISMATCH = 4,
  /* The group was aborted or shut down, here or on another rank. */
  MCCL_ERROR_ABORTED = 5,
  /* Bytes from a peer failed a check: the network or a peer is broken. */
  MCCL_ERROR_CORRUPTION = 6,
  /* Something else of this library, such as what the system refuses. */
  MCCL_ERROR_OTHER = 7,
  MCCL_ERROR_OUT_OF_MEMORY = 8,
  /* The caller's text buffer is too short. */
  MCCL_ERROR_NO_ROOM = 9,
  /* A fault of the library itself: please report it. */
  MCCL_ERROR_INTERNAL = 10
};

/* Such as "MCCL_ERROR_TIMEOUT"; "unknown status" for any other number. Never NULL. */
MCCL_API const char* mccl_status_name(mccl_status status) MCCL_NOEXCEPT;

/* What the last call of this thread that failed says: rank, peer, call, what was expected and
 * found, what to do. Never NULL; "" before the first failure. It stays until the next failure on
 * this thread, so success costs nothing and threads cannot take each other's texts. Where tasks
 * move between threads (goroutines, Julia tasks), read it before the task may move, or ask
 * mccl_work_error() and mccl_group_failure(), which go by handle. */
MCCL_API const char* mccl_last_error(void) MCCL_NOEXCEPT;

/* ---- Values -------------------------------------------------------------------------------- */

/* Type of one element. */
typedef int32_t mccl_dtype;
enum {
  MCCL_BOOL = 0, /* one byte */
  MCCL_U8 = 1,
  MCCL_I8 = 2,
  MCCL_U16 = 3,
  MCCL_I16 = 4,
  MCCL_U32 = 5,
  MCCL_I32 = 6,
  MCCL_U64 = 7,
  MCCL_I64 = 8,
  MCCL_F16 = 9,   /* IEEE binary16 */
  MCCL_BF16 = 10, /* bfloat16 */
  MCCL_F32 = 11,
  MCCL_F64 = 12,
  MCCL_C64 = 13, /* complex: two f32, real and imaginary */
  MCCL_C128 = 14 /* complex: two f64 */
};

/* bool: sum and max are "or", product and min are "and", and the bitwise three; integers: all but
 * premul_sum; floats: all but the bitwise three; complex: sum, avg, product, premul_sum. Integer
 * sums wrap; an integer average truncates toward zero. */
typedef int32_t mccl_reduce_op;
enum {
  MCCL_SUM = 0,
  MCCL_AVG = 1,
  MCCL_PRODUCT = 2,
  MCCL_MIN = 3,
  MCCL_MAX = 4,
  MCCL_BAND = 5,
  MCCL_BOR = 6,
  MCCL_BXOR = 7,
  MCCL_PREMUL_SUM = 8 /* a sum; each rank's input is multiplied by its mccl_call_options.factor */
};

/* Bytes of one element; 0 for an unknown type. */
MCCL_API size_t mccl_dtype_size(mccl_dtype dtype) MCCL_NOEXCEPT;
/* Such as "f32"; "unknown dtype". Never NULL. */
MCCL_API const char* mccl_dtype_name(mccl_dtype dtype) MCCL_NOEXCEPT;
/* Such as "premul_sum"; "unknown reduction". Never NULL. */
MCCL_API const char* mccl_reduce_op_name(mccl_reduce_op op) MCCL_NOEXCEPT;
/* 1 when the reduction is defined for the type, else 0; 0 for unknown ones. */
MCCL_API int32_t mccl_supports(mccl_dtype dtype, mccl_reduce_op op) MCCL_NOEXCEPT;

/* ---- Handles and options ------------------------------------------------------------------- */

typedef struct mccl_config mccl_config;   /* settings */
typedef struct mccl_store mccl_store;     /* where ranks meet */
typedef struct mccl_context mccl_context; /* this process's membership in a job */
typedef struct mccl_group mccl_group;     /* ranks that communicate together */
typedef struct mccl_work mccl_work;       /* one call */

/* Zero an options struct, then set struct_size to its sizeof and the fields that matter: later
 * versions add fields at the end, for which zero means what it was before. Fields that the
 * library does not know must be zero, or the call fails rather than pass over them. */
typedef struct mccl_context_options {
  uint32_t struct_size;
  int32_t rank;              /* 0 to size - 1 */
  int32_t size;              /* number of ranks, at least 1 */
  uint32_t flags;            /* none yet: 0 */
  mccl_store* store;         /* may be NULL when size is 1 */
  const mccl_config* config; /* NULL: mccl_config_from_environment() */
} mccl_context_options;

/* In mccl_call_options.flags: the caller promises to wait for the work at once, and the call then
 * runs on the caller's thread. Calls without a mccl_work imply it. */
#define MCCL_CALLER_WAITS 1u

typedef struct mccl_call_options {
  uint32_t struct_size;
  uint32_t flags;       /* MCCL_CALLER_WAITS */
  int64_t timeout_ms;   /* of the call; 0: the group's */
  const double* factor; /* for MCCL_PREMUL_SUM, which needs it; NULL for every other call */
  /* Since version 2, of all_reduce and reduce_scatter; docs/compression.md has more.
   *
   * How the sum is rounded between machines, the same on all ranks: the name of a codec, as the
   * setting `compression` takes it, or "none"; NULL: as the group does it. A codec for what is no
   * sum or average of floats is refused. topk_ratio goes with "topk": above 0, at most 1; 0 is
   * 0.01. */
  const char* compression;
  double topk_ratio;
  /* As many elements as the call's input, apart from it and from the output, that become what
   * rounding on this rank leaves out of the sum, zeros where nothing is; NULL: not wanted. Added to
   * this rank's next input it is not lost (error feedback). */
  void* left_out;
} mccl_call_options;

/* Since version 2. */
typedef struct mccl_group_options {
  uint32_t struct_size;
  uint32_t flags;         /* none yet: 0 */
  const char* name;       /* that no other living group of the context has */
  const int32_t* members; /* ranks of the context, in the order of their new ranks */
  size_t count;           /* of members */
  int64_t timeout_ms;     /* of its calls; 0: the setting timeout */
  /* Of its sums that say nothing of it, the same on all members, as in mccl_call_options; NULL: as
   * the settings say. */
  const char* compression;
  double topk_ratio;
} mccl_group_options;

/* ---- Settings ------------------------------------------------------------------------------ */

/* Settings go by the names and values of the table in the README: "timeout" or "MCCL_TIMEOUT". */

/* Every setting at its default. */
MCCL_API mccl_status mccl_config_defaults(mccl_config** config) MCCL_NOEXCEPT;
/* Defaults, then the file that MCCL_CONFIG names, then MCCL_* variables. An unknown variable or a
 * wrong value is an error that names the nearest right one. */
MCCL_API mccl_status mccl_config_from_environment(mccl_config** config) MCCL_NOEXCEPT;
MCCL_API mccl_status mccl_config_set(mccl_config* config, const char* name,
                                     const char* value) MCCL_NOEXCEPT;
MCCL_API mccl_status mccl_config_get(const mccl_config* config, const char* name, char* text,
                                     size_t capacity, size_t* length) MCCL_NOEXCEPT;
/* Reads a JSON object of settings over what is there; `origin` names it in errors. */
MCCL_API mccl_status mccl_config_merge_json(mccl_config* config, const char* json,
                                            const char* origin) MCCL_NOEXCEPT;
MCCL_API void mccl_config_destroy(mccl_config* config) MCCL_NOEXCEPT;

/* ---- Stores -------------------------------------------------------------------------------- */

/* A small key-value store that all ranks of a job can reach: keys of at most 1 KiB, values of at
 * most 1 MiB, 64 MiB in all. */

/* For ranks that are threads of one process: all use this one. */
MCCL_API mccl_status mccl_store_memory(mccl_store** store) MCCL_NOEXCEPT;
/* Served by rank 0 at `address` ("host:port") for as long as its handle or context lives; other
 * ranks connect to it and retry until timeout_ms (0: 60 s). Every connection proves `job_key`;
 * without one (NULL or "") whoever can reach the address may read and write the store. */
MCCL_API mccl_status mccl_store_tcp(const char* address, int32_t rank, const char* job_key,
                                    int64_t timeout_ms, mccl_store** store) MCCL_NOEXCEPT;
/* `value` is any `bytes` bytes. */
MCCL_API mccl_status mccl_store_set(mccl_store* store, const char* key, const void* value,
                                    size_t bytes) MCCL_NOEXCEPT;
/* Waits until the key exists (0: 60 s), then copies its value into `value`, without a NUL;
 * `*bytes`, which may be NULL, is how many it has. With capacity 0 only that is told. */
MCCL_API mccl_status mccl_store_get(mccl_store* store, const char* key, int64_t timeout_ms,
                                    void* value, size_t capacity, size_t* bytes) MCCL_NOEXCEPT;
/* Adds to a counter that starts at 0; `*sum`, which may be NULL, is its new value. */
MCCL_API mccl_status mccl_store_add(mccl_store* store, const char* key, int64_t amount,
                                    int64_t* sum) MCCL_NOEXCEPT;
MCCL_API void mccl_store_destroy(mccl_store* store) MCCL_NOEXCEPT;

/* ---- Contexts ------------------------------------------------------------------------------ */

/* A context owns one progress thread and shares nothing with other contexts of the process. */

/* Meets all other ranks: blocks until every pair has proved itself to each other, as long as the
 * setting connect_timeout lets it. */
MCCL_API mccl_status mccl_context_create(const mccl_context_options* options,
                                         mccl_context** context) MCCL_NOEXCEPT;
/* The same where the environment tells rank, size and meeting point: `mccl launch`, torchrun,
 * mpirun, srun, or MCCL_RANK, MCCL_WORLD_SIZE and MCCL_ROOT. `config` may be NULL: the
 * environment's. */
MCCL_API mccl_status mccl_context_from_environment(const mccl_config* config,
                                                   mccl_context** context) MCCL_NOEXCEPT;
/* Says goodbye to the peers and ends the progress thread; pending calls fail with
 * MCCL_ERROR_ABORTED. */
MCCL_API mccl_status mccl_context_shutdown(mccl_context* context) MCCL_NOEXCEPT;
/* Shuts down, then frees the handle. */
MCCL_API void mccl_context_destroy(mccl_context* context) MCCL_NOEXCEPT;

/* -1 for NULL or a handle of another kind, as for mccl_group_rank() and mccl_group_size(). */
MCCL_API int32_t mccl_context_rank(const mccl_context* context) MCCL_NOEXCEPT;
MCCL_API int32_t mccl_context_size(const mccl_context* context) MCCL_NOEXCEPT;
/* A setting that the context runs with. */
MCCL_API mccl_status mccl_context_setting(const mccl_context* context, const char* name, char* text,
                                          size_t capacity, size_t* length) MCCL_NOEXCEPT;

/* A handle of the group of all ranks. */
MCCL_API mccl_status mccl_context_world(mccl_context* context, mccl_group** group) MCCL_NOEXCEPT;
/* The group of `count` members (ranks of the context, in the order of their new ranks; this rank
 * among them). All members pass the same members and the same `name`, which no other living group
 * of the context has. timeout_ms 0: the setting timeout. */
MCCL_API mccl_status mccl_context_group(mccl_context* context, const char* name,
                                        const int32_t* members, size_t count, int64_t timeout_ms,
                                        mccl_group** group) MCCL_NOEXCEPT;
/* The same, with all that may be said of a group. Since version 2. */
MCCL_API mccl_status mccl_context_group_with(mccl_context* context,
                                             const mccl_group_options* options,
                                             mccl_group** group) MCCL_NOEXCEPT;

/* Counters and latencies of the context's calls as a JSON object; its names and what they mean are
 * MetricsSummary's, in include/mccl/metrics.h. */
MCCL_API mccl_status mccl_context_metrics_json(const mccl_context* context, char* text,
                                               size_t capacity, size_t* length) MCCL_NOEXCEPT;
MCCL_API mccl_status mccl_context_reset_metrics(mccl_context* context) MCCL_NOEXCEPT;
/* What the choice of algorithms assumes links and memory to cost, as {"numbers": {"latency_s":
 * ...}, "nodes": [the node of each rank; empty when no two share memory]}. */
MCCL_API mccl_status mccl_context_costs_json(const mccl_context* context, char* text,
                                             size_t capacity, size_t* length) MCCL_NOEXCEPT;

/* Around fork(), on the thread that forks, such as by pthread_atfork(). mccl_before_fork() waits
 * until nothing is under way, which takes as long as the step that runs; calls stay pending. Every
 * later use in the child fails with MCCL_ERROR_INVALID_ARGUMENT; handles may be destroyed there,
 * without a word to the peers. Without mccl_before_fork() the child's copies of the sockets stay
 * open until it ends. */
MCCL_API mccl_status mccl_before_fork(mccl_context* context) MCCL_NOEXCEPT;
MCCL_API mccl_status mccl_after_fork_in_parent(mccl_context* context) MCCL_NOEXCEPT;
MCCL_API mccl_status mccl_after_fork_in_child(mccl_context* context) MCCL_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#include "mccl/c_calls.h"

#endif /* MCCL_C_H */
