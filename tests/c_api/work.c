#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <string.h>

#include "c_api/c_test.h"

static void wait_and_test(Rank* rank) {
  mccl_work* work = NULL;
  int32_t value = 5;
  int32_t done = 9;
  char text[64] = "?";
  if (rank->rank == 1) {
    CHECK_OK(mccl_recv(rank->world, &value, 1, MCCL_I32, 0, 1, NULL, NULL));
    CHECK_OK(mccl_send(rank->world, &value, 1, MCCL_I32, 0, 2, NULL, NULL));
    return;
  }
  value = 8;
  CHECK_OK(mccl_recv(rank->world, &value, 1, MCCL_I32, 1, 2, NULL, &work));
  CHECK_OK(mccl_work_test(work, &done));
  CHECK(done == 0 && mccl_work_source(work) == -1);
  CHECK_STATUS(mccl_work_wait(work, 1), MCCL_ERROR_TIMEOUT);
  CHECK_OK(mccl_work_test(work, &done));
  CHECK(done == 0);
  CHECK_OK(mccl_work_error(work, text, sizeof text, NULL));
  CHECK(strcmp(text, "") == 0);
  CHECK_OK(mccl_send(rank->world, &value, 1, MCCL_I32, 1, 1, NULL, NULL));
  CHECK_OK(mccl_work_wait(work, -1));
  CHECK_OK(mccl_work_wait(work, INT64_MAX));
  CHECK_OK(mccl_work_test(work, &done));
  CHECK(done == 1 && value == 8 && mccl_work_source(work) == 1);
  mccl_work_destroy(work);
}

void c_work_waits_and_tests(void) { run_ranks(2, wait_and_test, NULL); }

typedef struct Told {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int times;
  mccl_status status;
  char error[512];
} Told;

static void take_note(void* user, mccl_status status, const char* error) {
  Told* told = user;
  pthread_mutex_lock(&told->mutex);
  ++told->times;
  told->status = status;
  strncpy(told->error, error, sizeof told->error - 1);
  pthread_cond_signal(&told->changed);
  pthread_mutex_unlock(&told->mutex);
}

typedef struct Last {
  mccl_work* work;
  Told told;
} Last;

static void destroy_and_take_note(void* user, mccl_status status, const char* error) {
  Last* last = user;
  mccl_work_destroy(last->work);
  take_note(&last->told, status, error);
}

/* Only the callback holds the work, as in a language binding that delivers results by callback. */
static void let_the_callback_destroy(Rank* rank) {
  int round;
  for (round = 0; round < 20; ++round) {
    Last last;
    int32_t value = 1;
    mccl_group* part = NULL;
    memset(&last, 0, sizeof last);
    pthread_mutex_init(&last.told.mutex, NULL);
    pthread_cond_init(&last.told.changed, NULL);
    CHECK_OK(mccl_group_split(rank->world, 0, rank->rank, &part));
    CHECK_OK(mccl_all_reduce(part, &value, &value, 1, MCCL_I32, MCCL_SUM, NULL, &last.work));
    if (round % 2 == 0) CHECK_OK(mccl_work_wait(last.work, 0));
    mccl_group_destroy(part);
    CHECK_OK(mccl_work_on_done(last.work, destroy_and_take_note, &last));
    pthread_mutex_lock(&last.told.mutex);
    while (last.told.times == 0) pthread_cond_wait(&last.told.changed, &last.told.mutex);
    pthread_mutex_unlock(&last.told.mutex);
    CHECK(last.told.status == MCCL_OK && value == 2);
    pthread_cond_destroy(&last.told.changed);
    pthread_mutex_destroy(&last.told.mutex);
  }
}

void c_work_may_end_in_its_callback(void) { run_ranks(2, let_the_callback_destroy, NULL); }

static void call_back(Rank* rank) {
  Told told;
  mccl_work* work = NULL;
  mccl_group* part = NULL;
  int32_t value = 1;
  memset(&told, 0, sizeof told);
  pthread_mutex_init(&told.mutex, NULL);
  pthread_cond_init(&told.changed, NULL);
  told.status = -1;

  CHECK_OK(mccl_all_reduce(rank->world, &value, &value, 1, MCCL_I32, MCCL_SUM, NULL, &work));
  CHECK_OK(mccl_work_on_done(work, take_note, &told));
  pthread_mutex_lock(&told.mutex);
  while (told.times == 0) pthread_cond_wait(&told.changed, &told.mutex);
  pthread_mutex_unlock(&told.mutex);
  CHECK(told.status == MCCL_OK && strcmp(told.error, "") == 0 && value == 2);
  CHECK_OK(mccl_work_on_done(work, take_note, &told)); /* the work is done: called at once */
  CHECK(told.times == 2);
  CHECK_REFUSED(mccl_work_on_done(work, NULL, &told), "callback is NULL");
  mccl_work_destroy(work);

  CHECK_OK(mccl_group_split(rank->world, rank->rank, 0, &part));
  CHECK_OK(mccl_group_abort(part, "no more"));
  CHECK_OK(mccl_barrier(part, NULL, &work)); /* the work reports the error */
  CHECK_STATUS(mccl_work_wait(work, 0), MCCL_ERROR_ABORTED);
  CHECK_OK(mccl_work_on_done(work, take_note, &told));
  CHECK(told.times == 3 && told.status == MCCL_ERROR_ABORTED);
  CHECK_TEXT(told.error, "no more");
  mccl_work_destroy(work);
  mccl_group_destroy(part);
  pthread_cond_destroy(&told.changed);
  pthread_mutex_destroy(&told.mutex);
}

void c_work_callbacks(void) { run_ranks(2, call_back, NULL); }

static void combine(Rank* rank) {
  mccl_work* parts[2] = {NULL, NULL};
  mccl_work* all = NULL;
  int32_t values[2] = {1, 2};
  int i;
  for (i = 0; i < 2; ++i) {
    CHECK_OK(mccl_all_reduce(rank->world, &values[i], &values[i], 1, MCCL_I32, MCCL_SUM, NULL,
                             &parts[i]));
  }
  CHECK_OK(mccl_work_all((const mccl_work* const*)parts, 2, &all));
  for (i = 0; i < 2; ++i) mccl_work_destroy(parts[i]);
  CHECK_OK(mccl_work_wait(all, 0));
  CHECK(values[0] == 2 && values[1] == 4);
  mccl_work_destroy(all);
  CHECK_OK(mccl_work_all(NULL, 0, &all)); /* an empty list is done */
  CHECK_OK(mccl_work_wait(all, 0));
  mccl_work_destroy(all);
  parts[0] = NULL;
  CHECK_REFUSED(mccl_work_all((const mccl_work* const*)parts, 1, &all), "works[0] is NULL");
  CHECK_REFUSED(mccl_work_all(NULL, 1, &all), "works is NULL");
  CHECK(all == NULL);
}

void c_work_all_of(void) { run_ranks(2, combine, NULL); }

/* Destroys the handles in an order that a garbage collector might choose. */
static void drop_the_group_first(Rank* rank) {
  mccl_group* part = NULL;
  mccl_work* work = NULL;
  mccl_work* all = NULL;
  int32_t value = 0;
  CHECK_OK(mccl_group_split(rank->world, 0, rank->rank, &part));
  if (rank->rank == 0) {
    CHECK_OK(mccl_recv(part, &value, 1, MCCL_I32, 1, 0, NULL, &work));
    CHECK_OK(mccl_work_all((const mccl_work* const*)&work, 1, &all));
    mccl_group_destroy(part);
    mccl_work_destroy(work);
    CHECK_OK(mccl_barrier(rank->world, NULL, NULL));
    CHECK_OK(mccl_work_wait(all, 0));
    CHECK(value == 4);
    mccl_work_destroy(all);
  } else {
    value = 4;
    CHECK_OK(mccl_barrier(rank->world, NULL, NULL));
    CHECK_OK(mccl_send(part, &value, 1, MCCL_I32, 0, 0, NULL, NULL));
    mccl_group_destroy(part);
  }
}

void c_work_outlives_its_group(void) { run_ranks(2, drop_the_group_first, NULL); }
