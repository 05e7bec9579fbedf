/* The C interface: the C++ interface for host memory in plain C types, for C programs and for
 * languages that can call C functions. It needs C99. docs/cpp-and-c.md has an example, and explains
 * how to build and link a program and how to call the functions from other languages.
 *
 * Errors. A function that can fail returns a mccl_status; mccl_last_error() on the same thread then
 * describes the failure. No exception leaves the library. A null pointer where none is allowed, an
 * unknown enum value or a handle of the wrong type fails with MCCL_ERROR_INVALID_ARGUMENT. On
 * failure, the variable behind every output pointer is set to NULL or 0.
 *
 * Handles. The caller owns each handle that a function returns through a pointer, and must destroy
 * it exactly once, with the mccl_..._destroy function of its type, which accepts NULL. A handle
 * keeps alive the objects that it depends on. A group's handle stays valid after the context's
 * handle is destroyed, but all calls of the group then fail with MCCL_ERROR_ABORTED. A context
 * stays usable after the handles of its store and configuration are destroyed. All functions are
 * thread-safe, even on the same handle. However, no other thread may use a mccl_config while it is
 * being changed, or a handle while it is being destroyed.
 *
 * Memory. Counts are in elements, and a buffer may have any alignment. It must stay valid until the
 * call is done, even if the mccl_work of the call is destroyed earlier. It may be NULL if its count
 * is 0, or if the description of the call allows it. All other inputs (text, counts, options,
 * members) are read before the function returns. Text is UTF-8 and ends with a NUL.
 *
 * Text out. A function that returns text copies it to `text`, a buffer of `capacity` bytes
 * including the NUL. *length (may be NULL) receives the full length without the NUL. With capacity
 * 0, `text` may be NULL and only the length is returned. If the buffer is too short, the status is
 * MCCL_ERROR_NO_ROOM and the text is empty.
 *
 * Times are in milliseconds: 0 means the default that the function or field documents, and a
 * negative number means no limit.
 */
#ifndef MCCL_C_H
#define MCCL_C_H

#include <stddef.h>
#include <stdint.h>

#include "mccl/export.h"

#ifdef __cplusplus
#define MCCL_NOEXCEPT noexcept
extern "C" {
#else
#define MCCL_NOEXCEPT
#endif

/* ---- Version ------------------------------------------------------------------------------- */

/* Version of the C interface. It increases when a function, field or value is added. A program
 * built against an older version runs with a newer library: functions keep their names, arguments
 * and meaning, and values keep their numbers. */
#define MCCL_C_VERSION 2

/* The MCCL_C_VERSION with which the loaded library was built. If it is less than the MCCL_C_VERSION
 * of this header, the library lacks something that this header declares. */
MCCL_API uint32_t mccl_c_version(void) MCCL_NOEXCEPT;
/* Release of the library, such as "0.1.0". The text is static. */
MCCL_API const char* mccl_version(void) MCCL_NOEXCEPT;

/* ---- Status -------------------------------------------------------------------------------- */

/* Outcome of a function or a call. Later versions may add values: treat an unknown value as
 * MCCL_ERROR_OTHER. This header stores enums in int32_t, because the width of a C enum depends on
 * the compiler. */
typedef int32_t mccl_status;
enum {
  MCCL_OK = 0,
  /* An argument, setting, file or variable is invalid. Nothing was sent, and the group stays
   * usable. */
  MCCL_ERROR_INVALID_ARGUMENT = 1,
  /* A call, or a wait, exceeded its timeout. */
  MCCL_ERROR_TIMEOUT = 2,
  /* A peer died, left, or cannot be reached. */
  MCCL_ERROR_PEER = 3,
  /* Calls or settings of two ranks do not match, for example the sizes of a message and its
   * receive. */
  MCCL_ERROR_MISMATCH = 4,
  /* The group was aborted or shut down, here or on another rank. */
  MCCL_ERROR_ABORTED = 5,
  /* Bytes from a peer failed a check: the network or a peer is broken. */
  MCCL_ERROR_CORRUPTION = 6,
  /* Another failure of this library, such as a system call that fails. */
  MCCL_ERROR_OTHER = 7,
  MCCL_ERROR_OUT_OF_MEMORY = 8,
  /* The buffer of the caller is too short for the text or value. */
  MCCL_ERROR_NO_ROOM = 9,
  /* A bug in the library: please report it. */
  MCCL_ERROR_INTERNAL = 10
};

/* The name of a status, such as "MCCL_ERROR_TIMEOUT"; "unknown status" for any other number. Never
 * NULL. */
MCCL_API const char* mccl_status_name(mccl_status status) MCCL_NOEXCEPT;

/* Error message of the last function that failed on this thread: rank, peer, call, what was
 * expected and found, and what to do. Never NULL; "" before the first failure. Valid until the next
 * failure on this thread; functions that succeed, and other threads, do not change it. If tasks
 * move between threads (goroutines, Julia tasks), read the message before the task may move to
 * another thread. Alternatively use mccl_work_error() and mccl_group_failure(), which take a
 * handle. */
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

/* A reduction operation. The element type decides which operations are allowed; see
 * mccl_supports():
 * - bool: SUM and MAX ("or"), PRODUCT and MIN ("and"), BAND, BOR, BXOR
 * - integers: all except PREMUL_SUM. Sums wrap; an average truncates toward zero.
 * - floats: all except BAND, BOR and BXOR
 * - complex: SUM, AVG, PRODUCT and PREMUL_SUM */
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
/* The name of a type, such as "f32"; "unknown dtype" for an unknown type. Never NULL. */
MCCL_API const char* mccl_dtype_name(mccl_dtype dtype) MCCL_NOEXCEPT;
/* The name of a reduction, such as "premul_sum"; "unknown reduction" for an unknown number. Never
 * NULL. */
MCCL_API const char* mccl_reduce_op_name(mccl_reduce_op op) MCCL_NOEXCEPT;
/* 1 if the reduction is defined for the type, else 0. Also 0 for an unknown type or reduction. */
MCCL_API int32_t mccl_supports(mccl_dtype dtype, mccl_reduce_op op) MCCL_NOEXCEPT;

/* ---- Handles and options ------------------------------------------------------------------- */

typedef struct mccl_config mccl_config;   /* settings */
typedef struct mccl_store mccl_store;     /* key-value store through which ranks find each other */
typedef struct mccl_context mccl_context; /* this process's membership in a job */
typedef struct mccl_group mccl_group;     /* ranks that communicate together */
typedef struct mccl_memory mccl_memory;   /* memory for the buffers of calls */
typedef struct mccl_work mccl_work;       /* handle of one call */

/* Zero an options struct, set struct_size to its sizeof, then set the fields that you need. Later
 * versions add fields at the end; zero in a new field keeps the old behaviour. An older library
 * fails the call if the program sets a field that the library does not know. */
typedef struct mccl_context_options {
  uint32_t struct_size;      /* sizeof of this struct */
  int32_t rank;              /* 0 to size - 1 */
  int32_t size;              /* number of ranks, at least 1 */
  uint32_t flags;            /* must be 0: no flag is defined */
  mccl_store* store;         /* may be NULL when size is 1 */
  const mccl_config* config; /* NULL: the result of mccl_config_from_environment() */
} mccl_context_options;

/* Flag of mccl_call_options.flags: the caller promises to wait for the work immediately. The call
 * then runs on the caller's thread. If the caller does something else first, the call may pause
 * meanwhile. A call whose `work` argument is NULL implies this flag. */
#define MCCL_CALLER_WAITS 1u

typedef struct mccl_call_options {
  uint32_t struct_size; /* sizeof of this struct */
  uint32_t flags;       /* 0 or MCCL_CALLER_WAITS */
  int64_t timeout_ms;   /* timeout of the call; 0: the group's timeout; negative: no limit */
  const double* factor; /* required for MCCL_PREMUL_SUM; must be NULL for every other call */
  /* The remaining fields exist since version 2, for all_reduce and reduce_scatter; see
   * docs/compression.md.
   *
   * `compression` is the name of the codec that compresses the sum between machines: a value of the
   * setting `compression`, or "none". NULL means the group's codec. All ranks must pass the same
   * name. A codec is allowed only for a sum or average of floats; any other call that sets one
   * fails with MCCL_ERROR_INVALID_ARGUMENT. `topk_ratio` is the share of elements that "topk"
   * sends, greater than 0 and at most 1. The default, 0, means 0.01. It must be 0 with any other
   * codec. */
  const char* compression;
  double topk_ratio;
  /* Buffer that receives the part of the sum that compression on this rank drops; zeros if nothing
   * is dropped. If NULL, that part is not stored. The buffer must have as many elements as the
   * input, and must not overlap the input or the output. If the caller adds its contents to this
   * rank's next input, no part of the sum is lost for good (error feedback). */
  void* left_out;
} mccl_call_options;

/* Options of mccl_context_group_with(). Since version 2. */
typedef struct mccl_group_options {
  uint32_t struct_size;   /* sizeof of this struct */
  uint32_t flags;         /* must be 0: no flag is defined */
  const char* name;       /* unique among the living groups of the context */
  const int32_t* members; /* ranks of the context, in the order of their ranks in the group */
  size_t count;           /* number of members */
  int64_t timeout_ms;     /* timeout of calls; 0: the setting `timeout`; negative: no limit */
  /* The codec of sums whose mccl_call_options set no codec, and its topk_ratio. All members must
   * pass the same values. If `compression` is NULL, the setting `compression` applies. */
  const char* compression;
  double topk_ratio;
} mccl_group_options;

/* ---- Settings ------------------------------------------------------------------------------ */

/* The names and values of the settings are listed in docs/settings.md. A setting may be given by
 * its name, such as "timeout", or by its variable, such as "MCCL_TIMEOUT". */

/* Creates a configuration in which every setting has its default. */
MCCL_API mccl_status mccl_config_defaults(mccl_config** config) MCCL_NOEXCEPT;
/* Creates a configuration from the defaults, then the file named by MCCL_CONFIG, then MCCL_*
 * variables. An unknown variable or an invalid value is an error; the message suggests a similar
 * name or value if there is one. With glibc, moves MCCL_JOB_KEY to memory that core dumps leave
 * out. Text that getenv returned for it earlier becomes empty; call getenv again. */
MCCL_API mccl_status mccl_config_from_environment(mccl_config** config) MCCL_NOEXCEPT;
/* Sets one setting from text; an unknown name or a value out of range is an error. Not thread-safe
 * with other uses of the same configuration. */
MCCL_API mccl_status mccl_config_set(mccl_config* config, const char* name,
                                     const char* value) MCCL_NOEXCEPT;
/* Copies out the value of one setting; see "Text out" above. The job key is not masked. */
MCCL_API mccl_status mccl_config_get(const mccl_config* config, const char* name, char* text,
                                     size_t capacity, size_t* length) MCCL_NOEXCEPT;
/* Sets all settings that a JSON object contains; other settings keep their values. Error messages
 * refer to the object by `origin`, such as the name of its file. On failure nothing changes. */
MCCL_API mccl_status mccl_config_merge_json(mccl_config* config, const char* json,
                                            const char* origin) MCCL_NOEXCEPT;
/* Frees the handle; NULL is allowed. */
MCCL_API void mccl_config_destroy(mccl_config* config) MCCL_NOEXCEPT;

/* ---- Stores -------------------------------------------------------------------------------- */

/* A small key-value store that all ranks of a job can reach: keys of at most 1 KiB, values of at
 * most 1 MiB, 64 MiB in all. A call beyond these limits fails with MCCL_ERROR_INVALID_ARGUMENT. */

/* Creates a store for ranks that are threads of one process. All of them must use this store. */
MCCL_API mccl_status mccl_store_memory(mccl_store** store) MCCL_NOEXCEPT;
/* Creates a store on TCP. Rank 0 serves it at `address` ("host:port") until the store's handle and
 * all contexts that use the store are destroyed. Other ranks connect to it and retry until
 * timeout_ms (0: 60 s) has passed. Each client must prove that it knows `job_key`. Without a key
 * (NULL or ""), each client must run on the host of rank 0 and as the same user. It proves this by
 * reading a file that rank 0 creates. The connections are encrypted if the environment sets
 * MCCL_ENCRYPTION=on, which must be so for the server and all clients. An mccl_config does not
 * affect the store. */
MCCL_API mccl_status mccl_store_tcp(const char* address, int32_t rank, const char* job_key,
                                    int64_t timeout_ms, mccl_store** store) MCCL_NOEXCEPT;
/* Sets the value of `key` to the `bytes` bytes at `value`, replacing any older value. */
MCCL_API mccl_status mccl_store_set(mccl_store* store, const char* key, const void* value,
                                    size_t bytes) MCCL_NOEXCEPT;
/* Blocks until the key exists, for at most timeout_ms (0: 60 s). Then copies the value of the key
 * into `value`, without a NUL. `*bytes`, which may be NULL, receives the length of the value. With
 * capacity 0 only the length is returned. If `capacity` is too small, the status is
 * MCCL_ERROR_NO_ROOM. */
MCCL_API mccl_status mccl_store_get(mccl_store* store, const char* key, int64_t timeout_ms,
                                    void* value, size_t capacity, size_t* bytes) MCCL_NOEXCEPT;
/* Adds `amount` to a counter that starts at 0; `*sum`, which may be NULL, receives the new value.
 * Overflow, or a key that holds no counter, is MCCL_ERROR_INVALID_ARGUMENT. */
MCCL_API mccl_status mccl_store_add(mccl_store* store, const char* key, int64_t amount,
                                    int64_t* sum) MCCL_NOEXCEPT;
/* Frees the handle; NULL is allowed. */
MCCL_API void mccl_store_destroy(mccl_store* store) MCCL_NOEXCEPT;

/* ---- Contexts ------------------------------------------------------------------------------ */

/* A context owns one progress thread and shares nothing with other contexts of the process. */

/* Creates a context and connects it to all other ranks. Blocks until every pair of ranks has
 * authenticated each other, for at most the time in the setting connect_timeout. */
MCCL_API mccl_status mccl_context_create(const mccl_context_options* options,
                                         mccl_context** context) MCCL_NOEXCEPT;
/* Creates a context whose rank, size and meeting point (the address of rank 0) are read from
 * environment variables. `mccl launch`, torchrun, mpirun and srun set them; otherwise set
 * MCCL_RANK, MCCL_WORLD_SIZE and MCCL_ROOT. If `config` is NULL, the settings are read from the
 * environment, too, as by mccl_config_from_environment(). Blocks like mccl_context_create(). */
MCCL_API mccl_status mccl_context_from_environment(const mccl_config* config,
                                                   mccl_context** context) MCCL_NOEXCEPT;
/* Leaves the job, meets all its ranks again, and creates the new context. Brings processes into the
 * job that were started in place of dead ranks. Every living rank must call it; the new processes
 * create a context as usual. `context` is then shut down, and must still be destroyed. Blocks for
 * at most `timeout_ms`, or the time in the setting connect_timeout if it is 0 or less. */
MCCL_API mccl_status mccl_context_reconfigure(mccl_context* context, int64_t timeout_ms,
                                              mccl_context** renewed) MCCL_NOEXCEPT;
/* Announces to the peers that this rank is leaving, and stops the progress thread. Pending calls
 * fail with MCCL_ERROR_ABORTED. */
MCCL_API mccl_status mccl_context_shutdown(mccl_context* context) MCCL_NOEXCEPT;
/* Shuts down the context like mccl_context_shutdown(), then frees the handle; NULL is allowed. */
MCCL_API void mccl_context_destroy(mccl_context* context) MCCL_NOEXCEPT;

/* This process's rank in the context; -1 for NULL or a handle of another kind. */
MCCL_API int32_t mccl_context_rank(const mccl_context* context) MCCL_NOEXCEPT;
/* The number of ranks of the context; -1 for NULL or a handle of another kind. */
MCCL_API int32_t mccl_context_size(const mccl_context* context) MCCL_NOEXCEPT;
/* Copies out the value of one of the context's settings; see "Text out" above. */
MCCL_API mccl_status mccl_context_setting(const mccl_context* context, const char* name, char* text,
                                          size_t capacity, size_t* length) MCCL_NOEXCEPT;

/* Returns a new handle of the group of all ranks. */
MCCL_API mccl_status mccl_context_world(mccl_context* context, mccl_group** group) MCCL_NOEXCEPT;
/* Creates a group. `members` lists `count` ranks of the context in the order of their ranks in the
 * group, and must contain this rank. All members must pass the same list and the same `name`. The
 * name must be unique among the living groups of the context. timeout_ms is the timeout of the
 * group's calls; 0 means the setting `timeout`, a negative number means no limit. */
MCCL_API mccl_status mccl_context_group(mccl_context* context, const char* name,
                                        const int32_t* members, size_t count, int64_t timeout_ms,
                                        mccl_group** group) MCCL_NOEXCEPT;
/* Does the same as mccl_context_group(). The arguments are fields of `options`, which also contains
 * the group's codec. Since version 2. */
MCCL_API mccl_status mccl_context_group_with(mccl_context* context,
                                             const mccl_group_options* options,
                                             mccl_group** group) MCCL_NOEXCEPT;

/* Copies out counters and latencies of the context's calls as a JSON object. Its fields are those
 * of MetricsSummary in include/mccl/metrics.h. */
MCCL_API mccl_status mccl_context_metrics_json(const mccl_context* context, char* text,
                                               size_t capacity, size_t* length) MCCL_NOEXCEPT;
/* Copies out the flight record of the context as JSON: its last 4096 calls, and its groups. The
 * fields are described in docs/inspect.md. Does not wait for pending calls. Since version 2. */
MCCL_API mccl_status mccl_context_flight_record_json(const mccl_context* context, char* text,
                                                     size_t capacity, size_t* length) MCCL_NOEXCEPT;
/* Resets the counters and latencies of the context's calls. */
MCCL_API mccl_status mccl_context_reset_metrics(mccl_context* context) MCCL_NOEXCEPT;
/* Copies out, as JSON, the costs of links and memory that the library uses to choose algorithms:
 * {"numbers": {"latency_s": ...}, "nodes": [...]}. The numbers are in seconds, bytes or bytes per
 * second. "nodes" lists the node of each rank; it is empty if no two ranks share memory. */
MCCL_API mccl_status mccl_context_costs_json(const mccl_context* context, char* text,
                                             size_t capacity, size_t* length) MCCL_NOEXCEPT;

/* Allocates `bytes` bytes for the buffers of calls, at a page, with undefined content. The other
 * ranks of this host can read this memory, so large calls whose buffers lie in it need not copy the
 * data for them first. Calls work with any memory; such buffers make them faster. The memory may
 * outlive the context. Call it in the process that created the context, not in a fork of it.
 * Without other ranks on this host, on macOS, and with the setting shared_buffers=false, the memory
 * is ordinary memory. Since version 2. */
MCCL_API mccl_status mccl_context_allocate(mccl_context* context, size_t bytes,
                                           mccl_memory** memory) MCCL_NOEXCEPT;
/* The first byte; NULL for NULL or a handle of another kind. Since version 2. */
MCCL_API void* mccl_memory_data(const mccl_memory* memory) MCCL_NOEXCEPT;
/* Frees the memory and its handle; NULL is allowed. No call may be using the memory. Since version
 * 2. */
MCCL_API void mccl_memory_destroy(mccl_memory* memory) MCCL_NOEXCEPT;

/* Call mccl_before_fork() before fork(), and mccl_after_fork_in_parent() and
 * mccl_after_fork_in_child() after it, all on the thread that forks, for instance in handlers that
 * pthread_atfork() registers. mccl_before_fork() blocks until the progress thread has finished its
 * current step; calls stay pending. In the child, handles may only be destroyed, which has no
 * effect on the peers. Every other use of a handle in the child fails with
 * MCCL_ERROR_INVALID_ARGUMENT. Without mccl_before_fork() the child's copies of the sockets stay
 * open until the child ends. */
MCCL_API mccl_status mccl_before_fork(mccl_context* context) MCCL_NOEXCEPT;
/* Call this in the parent, after fork(); see mccl_before_fork(). */
MCCL_API mccl_status mccl_after_fork_in_parent(mccl_context* context) MCCL_NOEXCEPT;
/* Call this in the child, after fork(); see mccl_before_fork(). */
MCCL_API mccl_status mccl_after_fork_in_child(mccl_context* context) MCCL_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#include "mccl/c_calls.h"

#endif /* MCCL_C_H */
