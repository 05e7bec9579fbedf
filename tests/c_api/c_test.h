/* Declarations for the tests of the C interface, which are written in C99. run_c_tests.cpp runs
 * them under GoogleTest. */
#ifndef MCCL_TESTS_C_TEST_H
#define MCCL_TESTS_C_TEST_H

#include <stddef.h>
#include <stdint.h>

#include "mccl/c.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Lists every test: X(file, name) stands for the function c_<file>_<name>(). */
#define C_TESTS(X)                           \
  X(values, versions_and_names)              \
  X(values, types_and_reductions)            \
  X(values, an_error_is_the_threads_own)     \
  X(config, set_and_get)                     \
  X(config, errors_name_the_fault)           \
  X(config, text_has_to_fit)                 \
  X(config, merged_json)                     \
  X(store, values_and_counters)              \
  X(store, over_tcp)                         \
  X(store, encrypted)                        \
  X(store, errors_name_the_fault)            \
  X(context, alone)                          \
  X(context, options_of_other_versions)      \
  X(context, invalid_ranks)                  \
  X(context, reports)                        \
  X(context, handles_may_go_in_any_order)    \
  X(context, an_end_fails_what_is_pending)   \
  X(context, a_fork)                         \
  X(collectives, reductions)                 \
  X(collectives, premultiplied_sums)         \
  X(collectives, gathers_and_scatters)       \
  X(collectives, uneven)                     \
  X(collectives, all_to_all)                 \
  X(collectives, every_type)                 \
  X(collectives, only_the_root_needs_output) \
  X(compression, every_codec)                \
  X(compression, rounding_errors)            \
  X(compression, of_a_group)                 \
  X(compression, errors_name_the_fault)      \
  X(messages, from_one_and_from_any)         \
  X(messages, coalesced)                     \
  X(messages, errors_in_coalescing)          \
  X(group, parts)                            \
  X(group, an_abort_ends_it_everywhere)      \
  X(work, waits_and_tests)                   \
  X(work, callbacks)                         \
  X(work, may_end_in_its_callback)           \
  X(work, all_of)                            \
  X(work, outlives_its_group)                \
  X(misuse, null_handles)                    \
  X(misuse, null_results)                    \
  X(misuse, handles_of_another_kind)         \
  X(misuse, null_data)                       \
  X(misuse, invalid_values)                  \
  X(misuse, invalid_options)                 \
  X(misuse, counts_beyond_memory)            \
  X(failure, mismatched_calls)               \
  X(failure, a_rank_that_does_not_join)      \
  X(failure, a_peer_that_dies)               \
  X(failure, missing_ranks)                  \
  X(threads, many_groups_at_once)            \
  X(threads, one_group_many_messages)

#define C_TEST_DECLARE(file, name) void c_##file##_##name(void);
C_TESTS(C_TEST_DECLARE)
#undef C_TEST_DECLARE

/* A check does not end the test on failure. It evaluates its expression once and yields 1 on
 * success. */
#define CHECK(condition) c_test_check(__FILE__, __LINE__, #condition, (condition) ? 1 : 0)
#define CHECK_STATUS(call, status) c_test_check_status(__FILE__, __LINE__, #call, (call), (status))
#define CHECK_OK(call) CHECK_STATUS(call, MCCL_OK)
#define CHECK_TEXT(text, words) c_test_check_text(__FILE__, __LINE__, (text), (words))
/* Checks that the call is refused for its arguments, and that the error contains the words. */
#define CHECK_REFUSED(call, words) c_test_check_refused(__FILE__, __LINE__, #call, (call), (words))

int c_test_check(const char* file, int line, const char* condition, int holds);
int c_test_check_status(const char* file, int line, const char* call, mccl_status found,
                        mccl_status expected);
int c_test_check_refused(const char* file, int line, const char* call, mccl_status found,
                         const char* words);
int c_test_check_text(const char* file, int line, const char* text, const char* words);

/* One rank, as its body sees it. */
typedef struct Rank {
  mccl_context* context;
  mccl_group* world;
  int32_t rank;
  int32_t size;
  void* user; /* the argument of run_ranks() */
} Rank;

/* Runs `body` on `size` ranks, which are threads of this process. Each rank ends with a barrier,
 * unless its group failed. */
void run_ranks(int32_t size, void (*body)(Rank* rank), void* user);
/* Does the same with settings: names and values in turn, terminated by NULL. */
void run_ranks_with(int32_t size, const char* const* settings, void (*body)(Rank* rank),
                    void* user);

/* Returns settings for tests: any free port, and timeouts short enough that a fault ends a test
 * instead of hanging it. */
mccl_config* test_config(void);
mccl_context_options context_options(int32_t rank, int32_t size, mccl_store* store,
                                     const mccl_config* config);
mccl_call_options call_options(void);

/* Writes "127.0.0.1:port" with a port that was free at the time of the call. */
void free_address(char* text, size_t capacity);

#ifdef __cplusplus
}
#endif

#endif
