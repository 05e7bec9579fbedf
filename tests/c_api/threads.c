#include <pthread.h>
#include <string.h>

#include "c_api/c_test.h"

enum { THREADS = 4, ROUNDS = 50 };

typedef struct Task {
  pthread_t thread;
  Rank* rank;
  mccl_group* group;
  int number;
} Task;

static void run_tasks(Rank* rank, void* (*body)(void*), mccl_group* const* groups) {
  Task tasks[THREADS];
  int i;
  for (i = 0; i < THREADS; ++i) {
    tasks[i].rank = rank;
    tasks[i].group = groups ? groups[i] : rank->world;
    tasks[i].number = i;
    CHECK(pthread_create(&tasks[i].thread, NULL, body, &tasks[i]) == 0);
  }
  for (i = 0; i < THREADS; ++i) pthread_join(tasks[i].thread, NULL);
}

static void* sum_and_fail(void* argument) {
  const Task* task = argument;
  char words[] = "dtype is 100";
  int round;
  words[sizeof words - 2] = (char)('0' + task->number);
  for (round = 0; round < ROUNDS; ++round) {
    int32_t value = round;
    mccl_work* work = NULL;
    CHECK_OK(mccl_all_reduce(task->group, &value, &value, 1, MCCL_I32, MCCL_SUM, NULL,
                             round % 2 == 0 ? &work : NULL));
    /* An error in one thread is not visible to the others. */
    CHECK_STATUS(mccl_broadcast(task->group, &value, 1, 100 + task->number, 0, NULL, NULL),
                 MCCL_ERROR_INVALID_ARGUMENT);
    if (work) CHECK_OK(mccl_work_wait(work, 0));
    CHECK(value == 2 * round);
    CHECK_TEXT(mccl_last_error(), words);
    mccl_work_destroy(work);
  }
  return NULL;
}

static void use_many_groups(Rank* rank) {
  mccl_group* groups[THREADS];
  int i;
  for (i = 0; i < THREADS; ++i) CHECK_OK(mccl_group_split(rank->world, 0, rank->rank, &groups[i]));
  run_tasks(rank, sum_and_fail, groups);
  for (i = 0; i < THREADS; ++i) mccl_group_destroy(groups[i]);
}

void c_threads_many_groups_at_once(void) { run_ranks(2, use_many_groups, NULL); }

/* Messages match by tag, so threads may share a handle without agreeing on an order. */
static void* talk(void* argument) {
  const Task* task = argument;
  const int32_t peer = 1 - task->rank->rank;
  const uint32_t tag = (uint32_t)task->number;
  int round;
  for (round = 0; round < ROUNDS; ++round) {
    int32_t given = 1000 * task->number + round;
    int32_t taken = -1;
    mccl_work* work = NULL;
    CHECK_OK(mccl_begin_coalescing(task->group));
    CHECK_OK(mccl_send(task->group, &given, 1, MCCL_I32, peer, tag, NULL, NULL));
    CHECK_OK(mccl_recv(task->group, &taken, 1, MCCL_I32, peer, tag, NULL, NULL));
    CHECK_OK(mccl_end_coalescing(task->group, &work));
    CHECK_OK(mccl_work_wait(work, 0));
    CHECK(taken == given);
    mccl_work_destroy(work);
  }
  return NULL;
}

static void share_one_group(Rank* rank) { run_tasks(rank, talk, NULL); }

void c_threads_one_group_many_messages(void) { run_ranks(2, share_one_group, NULL); }
