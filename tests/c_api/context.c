#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "c_api/c_test.h"

void c_context_alone(void) {
  mccl_context* context = NULL;
  mccl_context* renewed = NULL;
  mccl_context* other = NULL;
  mccl_group* world = NULL;
  mccl_memory* memory = NULL;
  mccl_config* config = test_config();
  const mccl_context_options options = context_options(0, 1, NULL, config);
  float value = 3;
  char text[16];
  CHECK_OK(mccl_context_create(&options, &context));
  CHECK_OK(mccl_context_world(context, &world));
  CHECK(mccl_context_rank(context) == 0 && mccl_context_size(context) == 1);
  CHECK(mccl_group_rank(world) == 0 && mccl_group_size(world) == 1);
  CHECK(strcmp(mccl_group_name(world), "world") == 0);
  CHECK_OK(mccl_all_reduce(world, &value, &value, 1, MCCL_F32, MCCL_SUM, NULL, NULL));
  CHECK(value == 3);
  CHECK_OK(mccl_context_setting(context, "log_level", text, sizeof text, NULL));
  CHECK(strcmp(text, "OFF") == 0);
  CHECK_REFUSED(mccl_context_setting(context, "log_levle", text, sizeof text, NULL), "log_level");
  CHECK_OK(mccl_context_allocate(context, 1 << 20, &memory));
  memset(mccl_memory_data(memory), 1, 1 << 20);
  mccl_memory_destroy(memory);
  CHECK_REFUSED(mccl_context_allocate(NULL, 1, &memory), "context is NULL");
  CHECK(memory == NULL && mccl_memory_data(NULL) == NULL);
  CHECK(mccl_memory_data((const mccl_memory*)context) == NULL);
  mccl_memory_destroy(NULL);
  CHECK_OK(mccl_context_reconfigure(context, 0, &renewed));
  CHECK(mccl_context_size(renewed) == 1);
  CHECK_REFUSED(mccl_context_reconfigure(NULL, 0, &other), "context");
  CHECK(other == NULL);
  mccl_context_destroy(renewed);
  mccl_group_destroy(world);
  mccl_context_destroy(context);

  setenv("MCCL_RANK", "0", 1);
  setenv("MCCL_WORLD_SIZE", "1", 1);
  CHECK_OK(mccl_context_from_environment(NULL, &context));
  CHECK(mccl_context_size(context) == 1);
  unsetenv("MCCL_RANK");
  unsetenv("MCCL_WORLD_SIZE");
  mccl_context_destroy(context);
  CHECK_OK(mccl_config_set(config, "rank", "0"));
  CHECK_OK(mccl_config_set(config, "world_size", "1"));
  CHECK_OK(mccl_context_from_environment(config, &context));
  mccl_context_destroy(context);
  mccl_config_destroy(config);
}

void c_context_options_of_other_versions(void) {
  struct {
    mccl_context_options known;
    uint64_t later;
  } newer;
  mccl_config* config = test_config();
  mccl_context* context = NULL;
  memset(&newer, 0, sizeof newer);
  newer.known = context_options(0, 1, NULL, config);
  newer.known.struct_size = sizeof newer;
  CHECK_OK(mccl_context_create(&newer.known, &context)); /* unknown fields are zero */
  mccl_context_destroy(context);
  newer.later = 1;
  CHECK_REFUSED(mccl_context_create(&newer.known, &context), "does not support");
  CHECK(context == NULL);
  newer.later = 0;
  newer.known.struct_size = 0;
  CHECK_REFUSED(mccl_context_create(&newer.known, &context), "struct_size is 0");
  newer.known.struct_size = UINT32_MAX;
  CHECK_REFUSED(mccl_context_create(&newer.known, &context), "struct_size");
  newer.known.struct_size = sizeof newer.known;
  newer.known.flags = 8;
  CHECK_REFUSED(mccl_context_create(&newer.known, &context), "flags is 0x8");
  mccl_config_destroy(config);
}

void c_context_invalid_ranks(void) {
  mccl_config* config = test_config();
  mccl_store* store = NULL;
  mccl_context* context = NULL;
  mccl_context_options options;
  CHECK_OK(mccl_store_memory(&store));
  options = context_options(2, 2, store, config);
  CHECK_REFUSED(mccl_context_create(&options, &context), "2");
  options = context_options(-1, 2, store, config);
  CHECK_REFUSED(mccl_context_create(&options, &context), "-1");
  options = context_options(0, 0, store, config);
  CHECK_REFUSED(mccl_context_create(&options, &context), "0");
  options = context_options(0, 2, NULL, config);
  CHECK_REFUSED(mccl_context_create(&options, &context), "store");
  CHECK_REFUSED(mccl_context_create(NULL, &context), "options is NULL");
  CHECK_REFUSED(mccl_context_from_environment(config, &context), "MCCL_RANK");
  CHECK(context == NULL);
  mccl_store_destroy(store);
  mccl_config_destroy(config);
}

static void check_reports(Rank* rank) {
  char text[4096];
  char record[1 << 16];
  size_t length = 0;
  float value = 1;
  int i;
  for (i = 0; i < 3; ++i) {
    CHECK_OK(mccl_all_reduce(rank->world, &value, &value, 1, MCCL_F32, MCCL_MAX, NULL, NULL));
  }
  CHECK_OK(mccl_context_metrics_json(rank->context, text, sizeof text, &length));
  CHECK(length == strlen(text) && text[0] == '{' && text[length - 1] == '}');
  CHECK_TEXT(text, "\"total_ops\":");
  CHECK_TEXT(text, "\"peak_staging_bytes\":");
  CHECK(strstr(text, "\"total_ops\":0,") == NULL);
  CHECK_OK(mccl_barrier(rank->world, NULL, NULL));
  CHECK_OK(mccl_context_reset_metrics(rank->context));
  CHECK_OK(mccl_context_metrics_json(rank->context, text, sizeof text, NULL));
  CHECK_TEXT(text, "\"total_ops\":0,");
  CHECK_OK(mccl_context_costs_json(rank->context, text, sizeof text, NULL));
  CHECK_TEXT(text, "{\"numbers\":{\"");
  CHECK_TEXT(text, "\"nodes\":[");
  CHECK_OK(mccl_context_flight_record_json(rank->context, record, sizeof record, &length));
  CHECK(length == strlen(record) && record[0] == '{' && record[length - 1] == '}');
  CHECK_TEXT(record, "\"op\":\"max\"");
  CHECK_TEXT(record, "\"call\":\"barrier\"");
  CHECK_STATUS(mccl_context_costs_json(rank->context, text, 3, NULL), MCCL_ERROR_NO_ROOM);
  CHECK_STATUS(mccl_context_metrics_json(rank->context, text, 3, NULL), MCCL_ERROR_NO_ROOM);
}

void c_context_reports(void) { run_ranks(2, check_reports, NULL); }

typedef struct Alone {
  mccl_store* store;
  int32_t rank;
} Alone;

static void* meet_and_drop(void* argument) {
  const Alone* alone = argument;
  mccl_config* config = test_config();
  mccl_context* context = NULL;
  mccl_group* world = NULL;
  const mccl_context_options options = context_options(alone->rank, 2, alone->store, config);
  CHECK_OK(mccl_context_create(&options, &context));
  mccl_config_destroy(config);
  CHECK_OK(mccl_context_world(context, &world));
  CHECK_OK(mccl_barrier(world, NULL, NULL));
  mccl_context_destroy(context);
  CHECK(mccl_group_size(world) == 2);
  CHECK_STATUS(mccl_barrier(world, NULL, NULL), MCCL_ERROR_ABORTED);
  mccl_group_destroy(world);
  return NULL;
}

void c_context_handles_may_go_in_any_order(void) {
  pthread_t threads[2];
  Alone places[2];
  mccl_store* store = NULL;
  int i;
  CHECK_OK(mccl_store_memory(&store));
  for (i = 0; i < 2; ++i) {
    places[i].store = store;
    places[i].rank = i;
    CHECK(pthread_create(&threads[i], NULL, meet_and_drop, &places[i]) == 0);
  }
  for (i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
  mccl_store_destroy(store);
  mccl_config_destroy(NULL);
  mccl_store_destroy(NULL);
  mccl_context_destroy(NULL);
  mccl_group_destroy(NULL);
  mccl_work_destroy(NULL);
}

static void shut_down_while_one_waits(Rank* rank) {
  mccl_work* work = NULL;
  float value = 0;
  char text[1024];
  if (rank->rank == 0) {
    CHECK_OK(mccl_recv(rank->world, &value, 1, MCCL_F32, 1, 5, NULL, &work));
    CHECK_OK(mccl_context_shutdown(rank->context));
    CHECK_STATUS(mccl_work_wait(work, 0), MCCL_ERROR_ABORTED);
    CHECK_OK(mccl_work_error(work, text, sizeof text, NULL));
    CHECK_TEXT(text, "recv");
    CHECK_OK(mccl_context_shutdown(rank->context)); /* a second shutdown is a no-op */
    mccl_work_destroy(work);
  } else {
    CHECK(mccl_recv(rank->world, &value, 1, MCCL_F32, 0, 5, NULL, NULL) != MCCL_OK);
    CHECK_STATUS(mccl_barrier(rank->world, NULL, NULL), MCCL_ERROR_PEER);
  }
}

void c_context_an_end_fails_what_is_pending(void) { run_ranks(2, shut_down_while_one_waits, NULL); }

static void fork_once(Rank* rank) {
  mccl_group* other = NULL;
  const int32_t both[] = {0, 1};
  CHECK_OK(mccl_context_group(rank->context, "other", both, 2, 0, &other));
  CHECK_OK(mccl_barrier(other, NULL, NULL));
  if (rank->rank == 0) {
    int status = 0;
    pid_t child;
    CHECK_OK(mccl_before_fork(rank->context));
    child = fork();
    if (child == 0) {
      int wrong = 0;
      alarm(20); /* ends the child if a lock is held */
      wrong += mccl_after_fork_in_child(rank->context) != MCCL_OK;
      wrong += mccl_barrier(other, NULL, NULL) != MCCL_ERROR_INVALID_ARGUMENT;
      wrong += strstr(mccl_last_error(), "fork") == NULL;
      mccl_group_destroy(other);
      mccl_group_destroy(rank->world);
      mccl_context_destroy(rank->context);
      _exit(wrong);
    }
    CHECK_OK(mccl_after_fork_in_parent(rank->context));
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  CHECK_OK(mccl_barrier(other, NULL, NULL));
  mccl_group_destroy(other);
}

void c_context_a_fork(void) { run_ranks(2, fork_once, NULL); }
