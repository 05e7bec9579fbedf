#include <string.h>

#include "c_api/c_test.h"

/* Calls every function with NULL in place of a handle. */
void c_misuse_null_handles(void) {
  char text[8];
  size_t n = 5;
  int64_t sum;
  int32_t x = 0;
  const size_t counts[2] = {1, 1};
  mccl_group* group = NULL;
  mccl_work* work = NULL;
  const char* is_null = "group is NULL";

  CHECK_REFUSED(mccl_config_set(NULL, "timeout", "1"), "config is NULL");
  CHECK_REFUSED(mccl_config_get(NULL, "timeout", text, 8, &n), "config is NULL");
  CHECK_REFUSED(mccl_config_merge_json(NULL, "{}", "here"), "config is NULL");
  CHECK_REFUSED(mccl_store_set(NULL, "key", "value", 5), "store is NULL");
  CHECK_REFUSED(mccl_store_get(NULL, "key", 0, text, 8, &n), "store is NULL");
  CHECK_REFUSED(mccl_store_add(NULL, "key", 1, &sum), "store is NULL");

  CHECK_REFUSED(mccl_context_shutdown(NULL), "context is NULL");
  CHECK(mccl_context_rank(NULL) == -1 && mccl_context_size(NULL) == -1);
  CHECK_REFUSED(mccl_context_setting(NULL, "timeout", text, 8, &n), "context is NULL");
  CHECK_REFUSED(mccl_context_world(NULL, &group), "context is NULL");
  CHECK_REFUSED(mccl_context_group(NULL, "name", &x, 1, 0, &group), "context is NULL");
  CHECK_REFUSED(mccl_context_metrics_json(NULL, text, 8, &n), "context is NULL");
  CHECK_REFUSED(mccl_context_flight_record_json(NULL, text, 8, &n), "context is NULL");
  CHECK_REFUSED(mccl_context_reset_metrics(NULL), "context is NULL");
  CHECK_REFUSED(mccl_context_costs_json(NULL, text, 8, &n), "context is NULL");
  CHECK_REFUSED(mccl_before_fork(NULL), "context is NULL");
  CHECK_REFUSED(mccl_after_fork_in_parent(NULL), "context is NULL");
  CHECK_REFUSED(mccl_after_fork_in_child(NULL), "context is NULL");

  CHECK(mccl_group_rank(NULL) == -1 && mccl_group_size(NULL) == -1);
  CHECK(mccl_group_name(NULL) == NULL);
  CHECK_REFUSED(mccl_group_split(NULL, 0, 0, &group), is_null);
  CHECK_REFUSED(mccl_group_abort(NULL, "reason"), is_null);
  CHECK_REFUSED(mccl_group_failure(NULL, text, 8, &n), is_null);
  CHECK_REFUSED(mccl_all_reduce(NULL, &x, &x, 1, MCCL_I32, MCCL_SUM, NULL, &work), is_null);
  CHECK_REFUSED(mccl_broadcast(NULL, &x, 1, MCCL_I32, 0, NULL, &work), is_null);
  CHECK_REFUSED(mccl_reduce(NULL, &x, &x, 1, MCCL_I32, MCCL_SUM, 0, NULL, &work), is_null);
  CHECK_REFUSED(mccl_all_gather(NULL, &x, &x, 1, MCCL_I32, NULL, &work), is_null);
  CHECK_REFUSED(mccl_all_gatherv(NULL, &x, &x, counts, MCCL_I32, NULL, &work), is_null);
  CHECK_REFUSED(mccl_gather(NULL, &x, &x, 1, MCCL_I32, 0, NULL, &work), is_null);
  CHECK_REFUSED(mccl_gatherv(NULL, &x, &x, counts, MCCL_I32, 0, NULL, &work), is_null);
  CHECK_REFUSED(mccl_scatter(NULL, &x, &x, 1, MCCL_I32, 0, NULL, &work), is_null);
  CHECK_REFUSED(mccl_scatterv(NULL, &x, &x, counts, MCCL_I32, 0, NULL, &work), is_null);
  CHECK_REFUSED(mccl_reduce_scatter(NULL, &x, &x, 1, MCCL_I32, MCCL_SUM, NULL, &work), is_null);
  CHECK_REFUSED(mccl_reduce_scatterv(NULL, &x, &x, counts, MCCL_I32, MCCL_SUM, NULL, &work),
                is_null);
  CHECK_REFUSED(mccl_all_to_all(NULL, &x, &x, 1, MCCL_I32, NULL, &work), is_null);
  CHECK_REFUSED(mccl_all_to_allv(NULL, &x, counts, &x, counts, MCCL_I32, NULL, &work), is_null);
  CHECK_REFUSED(mccl_barrier(NULL, NULL, &work), is_null);
  CHECK_REFUSED(mccl_send(NULL, &x, 1, MCCL_I32, 0, 0, NULL, &work), is_null);
  CHECK_REFUSED(mccl_recv(NULL, &x, 1, MCCL_I32, 0, 0, NULL, &work), is_null);
  CHECK_REFUSED(mccl_begin_coalescing(NULL), is_null);
  CHECK_REFUSED(mccl_end_coalescing(NULL, &work), is_null);

  CHECK_REFUSED(mccl_work_wait(NULL, 0), "work is NULL");
  CHECK_REFUSED(mccl_work_test(NULL, &x), "work is NULL");
  CHECK_REFUSED(mccl_work_error(NULL, text, 8, &n), "work is NULL");
  CHECK(mccl_work_source(NULL) == -1);
  CHECK_REFUSED(mccl_work_on_done(NULL, NULL, NULL), "work is NULL");
  CHECK(group == NULL && work == NULL);
}

/* A context of one rank, for calls that are refused before anything is sent. */
typedef struct One {
  mccl_config* config;
  mccl_context* context;
  mccl_group* world;
} One;

static One make_one(void) {
  One one = {NULL, NULL, NULL};
  mccl_context_options options;
  one.config = test_config();
  options = context_options(0, 1, NULL, one.config);
  CHECK_OK(mccl_context_create(&options, &one.context));
  CHECK_OK(mccl_context_world(one.context, &one.world));
  return one;
}

static void end_one(One* one) {
  mccl_group_destroy(one->world);
  mccl_context_destroy(one->context);
  mccl_config_destroy(one->config);
}

/* Passes NULL in place of a result. */
void c_misuse_null_results(void) {
  One one = make_one();
  const mccl_context_options options = context_options(0, 1, NULL, one.config);
  const int32_t member = 0;
  mccl_work* work = NULL;
  CHECK_REFUSED(mccl_config_defaults(NULL), "config is NULL");
  CHECK_REFUSED(mccl_config_from_environment(NULL), "config is NULL");
  CHECK_REFUSED(mccl_store_memory(NULL), "store is NULL");
  CHECK_REFUSED(mccl_store_tcp("127.0.0.1:1", 0, NULL, 0, NULL), "store is NULL");
  CHECK_REFUSED(mccl_context_create(&options, NULL), "context is NULL");
  CHECK_REFUSED(mccl_context_from_environment(one.config, NULL), "context is NULL");
  CHECK_REFUSED(mccl_context_world(one.context, NULL), "group is NULL");
  CHECK_REFUSED(mccl_context_group(one.context, "x", &member, 1, 0, NULL), "group is NULL");
  CHECK_REFUSED(mccl_group_split(one.world, 0, 0, NULL), "part is NULL");
  CHECK_OK(mccl_barrier(one.world, NULL, &work));
  CHECK_REFUSED(mccl_work_test(work, NULL), "done is NULL");
  CHECK_REFUSED(mccl_work_all((const mccl_work* const*)&work, 1, NULL), "all is NULL");
  mccl_work_destroy(work);
  end_one(&one);
}

void c_misuse_handles_of_another_kind(void) {
  One one = make_one();
  mccl_store* store = NULL;
  mccl_group* group = NULL;
  mccl_work* work = NULL;
  mccl_context* context = NULL;
  mccl_context_options options = context_options(0, 1, NULL, (mccl_config*)one.world);
  char text[8];
  CHECK_REFUSED(mccl_barrier((mccl_group*)one.context, NULL, NULL),
                "group is a mccl_context, expected a mccl_group");
  CHECK_REFUSED(mccl_context_world((mccl_context*)one.world, &group), "is a mccl_group");
  CHECK_REFUSED(mccl_config_get((mccl_config*)one.context, "rank", text, 8, NULL), "a mccl_config");
  CHECK_REFUSED(mccl_work_wait((mccl_work*)one.config, 0), "is a mccl_config");
  CHECK_REFUSED(mccl_store_add((mccl_store*)one.config, "key", 1, NULL), "a mccl_store");
  CHECK_REFUSED(mccl_context_create(&options, &context), "config is a mccl_group");
  options = context_options(0, 1, (mccl_store*)one.world, one.config);
  CHECK_REFUSED(mccl_context_create(&options, &context), "options.store is a mccl_group");
  CHECK(mccl_group_size((mccl_group*)one.config) == -1);
  CHECK(mccl_group_name((mccl_group*)one.config) == NULL);
  CHECK_OK(mccl_barrier(one.world, NULL, &work));
  CHECK_REFUSED(mccl_context_shutdown((mccl_context*)work), "is a mccl_work");
  mccl_group_destroy((mccl_group*)work); /* does not destroy the work */
  CHECK_TEXT(mccl_last_error(), "mccl_group_destroy");
  CHECK_OK(mccl_work_wait(work, 0));
  CHECK_OK(mccl_store_memory(&store));
  CHECK_REFUSED(mccl_context_shutdown((mccl_context*)store), "is a mccl_store");
  mccl_store_destroy(store);
  mccl_work_destroy(work);
  end_one(&one);
}

void c_misuse_null_data(void) {
  One one = make_one();
  mccl_group* g = one.world;
  const size_t counts[1] = {1};
  int32_t x = 1;
  int32_t y = 1;
  CHECK_REFUSED(mccl_all_reduce(g, NULL, &x, 1, MCCL_I32, MCCL_SUM, NULL, NULL), "input is null");
  CHECK_REFUSED(mccl_all_reduce(g, &x, NULL, 1, MCCL_I32, MCCL_SUM, NULL, NULL), "output is null");
  CHECK_REFUSED(mccl_broadcast(g, NULL, 1, MCCL_I32, 0, NULL, NULL), "null");
  CHECK_REFUSED(mccl_reduce(g, &x, NULL, 1, MCCL_I32, MCCL_SUM, 0, NULL, NULL), "null");
  CHECK_REFUSED(mccl_all_gather(g, NULL, &x, 1, MCCL_I32, NULL, NULL), "null");
  CHECK_REFUSED(mccl_all_gatherv(g, &x, &y, NULL, MCCL_I32, NULL, NULL), "counts is NULL");
  CHECK_REFUSED(mccl_gather(g, &x, NULL, 1, MCCL_I32, 0, NULL, NULL), "null");
  CHECK_REFUSED(mccl_gatherv(g, &x, &y, NULL, MCCL_I32, 0, NULL, NULL), "counts is NULL");
  CHECK_REFUSED(mccl_scatter(g, NULL, &x, 1, MCCL_I32, 0, NULL, NULL), "null");
  CHECK_REFUSED(mccl_scatterv(g, &x, &y, NULL, MCCL_I32, 0, NULL, NULL), "counts is NULL");
  CHECK_REFUSED(mccl_reduce_scatter(g, NULL, &x, 1, MCCL_I32, MCCL_SUM, NULL, NULL), "null");
  CHECK_REFUSED(mccl_reduce_scatterv(g, &x, &y, NULL, MCCL_I32, MCCL_SUM, NULL, NULL),
                "counts is NULL");
  CHECK_REFUSED(mccl_all_to_all(g, NULL, &x, 1, MCCL_I32, NULL, NULL), "null");
  CHECK_REFUSED(mccl_all_to_allv(g, &x, NULL, &y, counts, MCCL_I32, NULL, NULL),
                "in_counts is NULL");
  CHECK_REFUSED(mccl_all_to_allv(g, &x, counts, &y, NULL, MCCL_I32, NULL, NULL),
                "out_counts is NULL");
  CHECK_REFUSED(mccl_send(g, NULL, 1, MCCL_I32, 0, 0, NULL, NULL), "null");
  CHECK_REFUSED(mccl_recv(g, NULL, 1, MCCL_I32, 0, 0, NULL, NULL), "null");
  end_one(&one);
}

void c_misuse_invalid_values(void) {
  const mccl_dtype dtypes[] = {-1, 15, INT32_MAX, INT32_MIN};
  const mccl_reduce_op ops[] = {-1, 9, INT32_MAX, INT32_MIN};
  const size_t counts[1] = {1};
  One one = make_one();
  mccl_group* g = one.world;
  int32_t x = 1;
  int32_t y = 1;
  size_t i;
  for (i = 0; i < sizeof dtypes / sizeof dtypes[0]; ++i) {
    const mccl_dtype d = dtypes[i];
    const mccl_reduce_op op = ops[i];
    CHECK_REFUSED(mccl_all_reduce(g, &x, &y, 1, d, MCCL_SUM, NULL, NULL), "dtype is ");
    CHECK_REFUSED(mccl_broadcast(g, &x, 1, d, 0, NULL, NULL), "dtype is ");
    CHECK_REFUSED(mccl_reduce(g, &x, &y, 1, d, MCCL_SUM, 0, NULL, NULL), "dtype is ");
    CHECK_REFUSED(mccl_all_gather(g, &x, &y, 1, d, NULL, NULL), "dtype is ");
    CHECK_REFUSED(mccl_all_gatherv(g, &x, &y, counts, d, NULL, NULL), "dtype is ");
    CHECK_REFUSED(mccl_gather(g, &x, &y, 1, d, 0, NULL, NULL), "dtype is ");
    CHECK_REFUSED(mccl_gatherv(g, &x, &y, counts, d, 0, NULL, NULL), "dtype is ");
    CHECK_REFUSED(mccl_scatter(g, &x, &y, 1, d, 0, NULL, NULL), "dtype is ");
    CHECK_REFUSED(mccl_scatterv(g, &x, &y, counts, d, 0, NULL, NULL), "dtype is ");
    CHECK_REFUSED(mccl_reduce_scatter(g, &x, &y, 1, d, MCCL_SUM, NULL, NULL), "dtype is ");
    CHECK_REFUSED(mccl_reduce_scatterv(g, &x, &y, counts, d, MCCL_SUM, NULL, NULL), "dtype is ");
    CHECK_REFUSED(mccl_all_to_all(g, &x, &y, 1, d, NULL, NULL), "dtype is ");
    CHECK_REFUSED(mccl_all_to_allv(g, &x, counts, &y, counts, d, NULL, NULL), "dtype is ");
    CHECK_REFUSED(mccl_send(g, &x, 1, d, 0, 0, NULL, NULL), "dtype is ");
    CHECK_REFUSED(mccl_recv(g, &x, 1, d, 0, 0, NULL, NULL), "dtype is ");
    CHECK_REFUSED(mccl_all_reduce(g, &x, &y, 1, MCCL_I32, op, NULL, NULL), "op is ");
    CHECK_REFUSED(mccl_reduce(g, &x, &y, 1, MCCL_I32, op, 0, NULL, NULL), "op is ");
    CHECK_REFUSED(mccl_reduce_scatter(g, &x, &y, 1, MCCL_I32, op, NULL, NULL), "op is ");
    CHECK_REFUSED(mccl_reduce_scatterv(g, &x, &y, counts, MCCL_I32, op, NULL, NULL), "op is ");
  }
  CHECK_REFUSED(mccl_broadcast(g, &x, 1, MCCL_I32, 1, NULL, NULL), "root 1");
  CHECK_REFUSED(mccl_broadcast(g, &x, 1, MCCL_I32, -1, NULL, NULL), "root -1");
  CHECK_REFUSED(mccl_send(g, &x, 1, MCCL_I32, 4, 0, NULL, NULL), "rank 4");
  CHECK_REFUSED(mccl_send(g, &x, 1, MCCL_I32, MCCL_ANY_SOURCE, 0, NULL, NULL), "rank -1");
  CHECK_REFUSED(mccl_recv(g, &x, 1, MCCL_I32, INT32_MIN, 0, NULL, NULL), "not in this group");
  end_one(&one);
}

void c_misuse_invalid_options(void) {
  One one = make_one();
  mccl_group* g = one.world;
  const double factor = 2;
  mccl_call_options options = call_options();
  mccl_work* work = (mccl_work*)&options;
  float x = 1;
  options.struct_size = 4;
  CHECK_REFUSED(mccl_barrier(g, &options, &work), "struct_size is 4");
  CHECK(work == NULL);
  options = call_options();
  options.flags = 2;
  CHECK_REFUSED(mccl_barrier(g, &options, NULL), "flags is 0x2");
  options = call_options();
  CHECK_REFUSED(mccl_all_reduce(g, &x, &x, 1, MCCL_F32, MCCL_PREMUL_SUM, &options, NULL),
                "needs options.factor");
  options.factor = &factor;
  CHECK_REFUSED(mccl_all_reduce(g, &x, &x, 1, MCCL_F32, MCCL_SUM, &options, NULL), "op is sum");
  CHECK_REFUSED(mccl_barrier(g, &options, NULL), "options.factor is set");
  CHECK_REFUSED(mccl_send(g, &x, 1, MCCL_F32, 0, 0, &options, NULL), "options.factor is set");
  CHECK_OK(mccl_all_reduce(g, &x, &x, 1, MCCL_F32, MCCL_PREMUL_SUM, &options, NULL));
  CHECK(x == 2);
  options = call_options();
  options.struct_size = offsetof(mccl_call_options, compression); /* the size of version 1 */
  options.compression = "what lies behind it is not read";
  CHECK_OK(mccl_all_reduce(g, &x, &x, 1, MCCL_F32, MCCL_SUM, &options, NULL));
  options = call_options();
  options.timeout_ms = INT64_MIN;
  CHECK_OK(mccl_barrier(g, &options, NULL));
  options.timeout_ms = INT64_MAX;
  options.flags = MCCL_CALLER_WAITS;
  CHECK_OK(mccl_barrier(g, &options, NULL));
  end_one(&one);
}

static void ask_for_too_much(Rank* rank) {
  const size_t most = (size_t)-1;
  const size_t half[2] = {most / 2 + 1, most / 2 + 1};
  const size_t large[2] = {most / 8, 1};
  int32_t x = 0;
  int32_t y = 0;
  mccl_group* g = rank->world;
  const char* words = "address space";
  CHECK_REFUSED(mccl_all_reduce(g, &x, &y, most, MCCL_I32, MCCL_SUM, NULL, NULL), words);
  CHECK_REFUSED(mccl_broadcast(g, &x, most, MCCL_I32, 0, NULL, NULL), words);
  CHECK_REFUSED(mccl_all_gather(g, &x, &y, most / 2 + 1, MCCL_I32, NULL, NULL), words);
  CHECK_REFUSED(mccl_scatter(g, &x, &y, most / 2 + 1, MCCL_I32, 0, NULL, NULL), words);
  CHECK_REFUSED(mccl_all_to_all(g, &x, &y, most / 2 + 1, MCCL_I32, NULL, NULL), words);
  CHECK_REFUSED(mccl_all_gatherv(g, &x, &y, half, MCCL_I32, NULL, NULL), words);
  CHECK_REFUSED(mccl_gatherv(g, &x, &y, large, MCCL_I32, 0, NULL, NULL), words);
  CHECK_REFUSED(mccl_all_to_allv(g, &x, half, &y, large, MCCL_I32, NULL, NULL), words);
  CHECK_REFUSED(mccl_send(g, &x, most, MCCL_U8, 1 - rank->rank, 0, NULL, NULL), words);
  CHECK_OK(mccl_barrier(g, NULL, NULL)); /* the group still works */
}

void c_misuse_counts_beyond_memory(void) { run_ranks(2, ask_for_too_much, NULL); }
