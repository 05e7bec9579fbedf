#define _POSIX_C_SOURCE 200809L
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "c_api/c_test.h"

static void differ(Rank* rank) {
  float values[2] = {1, 2};
  const size_t count = rank->rank == 0 ? 1 : 2;
  CHECK_STATUS(mccl_all_reduce(rank->world, values, values, count, MCCL_F32, MCCL_SUM, NULL, NULL),
               MCCL_ERROR_MISMATCH);
  CHECK_TEXT(mccl_last_error(), "sum of 1 f32");
  CHECK_TEXT(mccl_last_error(), "sum of 2 f32");
  CHECK_STATUS(mccl_barrier(rank->world, NULL, NULL), MCCL_ERROR_MISMATCH);
}

void c_failure_mismatched_calls(void) { run_ranks(2, differ, NULL); }

static void stay_away(Rank* rank) {
  mccl_call_options options = call_options();
  float value = 1;
  options.timeout_ms = 200;
  if (rank->rank == 1) {
    /* Ends with the failure that rank 0 reports. */
    CHECK(mccl_recv(rank->world, &value, 1, MCCL_F32, 0, 0, NULL, NULL) != MCCL_OK);
    return;
  }
  CHECK_STATUS(mccl_all_reduce(rank->world, &value, &value, 1, MCCL_F32, MCCL_SUM, &options, NULL),
               MCCL_ERROR_TIMEOUT);
  CHECK_TEXT(mccl_last_error(), "timed out");
}

void c_failure_a_rank_that_does_not_join(void) { run_ranks(2, stay_away, NULL); }

static mccl_context* meet_over_tcp(const char* address, int32_t rank, mccl_store** store) {
  mccl_context* context = NULL;
  mccl_config* config = test_config();
  mccl_context_options options;
  mccl_config_set(config, "job_key", "key");
  if (mccl_store_tcp(address, rank, "key", 60000, store) == MCCL_OK) {
    options = context_options(rank, 2, *store, config);
    mccl_context_create(&options, &context);
  }
  mccl_config_destroy(config);
  return context;
}

void c_failure_a_peer_that_dies(void) {
  char address[64];
  mccl_store* store = NULL;
  mccl_context* context = NULL;
  mccl_group* world = NULL;
  float value = 1;
  pid_t child;
  int status = 0;
  free_address(address, sizeof address);
  child = fork();
  context = meet_over_tcp(address, child == 0 ? 1 : 0, &store);
  mccl_context_world(context, &world);
  if (child == 0) _exit(mccl_barrier(world, NULL, NULL) == MCCL_OK ? 7 : 1);
  CHECK(context != NULL);
  CHECK_OK(mccl_barrier(world, NULL, NULL));
  CHECK_STATUS(mccl_all_reduce(world, &value, &value, 1, MCCL_F32, MCCL_SUM, NULL, NULL),
               MCCL_ERROR_PEER);
  CHECK_TEXT(mccl_last_error(), "rank 1");
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
  mccl_group_destroy(world);
  mccl_context_destroy(context);
  mccl_store_destroy(store);
}

void c_failure_missing_ranks(void) {
  mccl_store* store = NULL;
  mccl_config* config = test_config();
  mccl_context* context = NULL;
  mccl_context_options options;
  CHECK_OK(mccl_store_memory(&store));
  CHECK_OK(mccl_config_set(config, "connect_timeout", "0.2"));
  options = context_options(0, 2, store, config);
  CHECK_STATUS(mccl_context_create(&options, &context), MCCL_ERROR_TIMEOUT);
  CHECK(context == NULL);
  CHECK_TEXT(mccl_last_error(), "1");
  mccl_config_destroy(config);
  mccl_store_destroy(store);
}
