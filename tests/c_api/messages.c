#include "c_api/c_test.h"

static void talk(Rank* rank) {
  int32_t value = rank->rank;
  int32_t seen[3] = {0, 0, 0};
  mccl_work* work = NULL;
  int i;
  if (rank->rank != 0) {
    CHECK_OK(mccl_send(rank->world, &value, 1, MCCL_I32, 0, 7, NULL, NULL));
    CHECK_OK(mccl_send(rank->world, NULL, 0, MCCL_I32, 0, 8, NULL, &work));
    CHECK_OK(mccl_work_wait(work, 0));
    CHECK(mccl_work_source(work) == -1);
    mccl_work_destroy(work);
    return;
  }
  for (i = 1; i < rank->size; ++i) {
    CHECK_OK(mccl_recv(rank->world, &value, 1, MCCL_I32, MCCL_ANY_SOURCE, 7, NULL, &work));
    CHECK_OK(mccl_work_wait(work, 0));
    if (CHECK(mccl_work_source(work) == value) && CHECK(value > 0 && value < 3)) ++seen[value];
    mccl_work_destroy(work);
    CHECK_OK(mccl_recv(rank->world, NULL, 0, MCCL_I32, i, 8, NULL, NULL));
  }
  CHECK(seen[1] == 1 && seen[2] == 1);
}

void c_messages_from_one_and_from_any(void) { run_ranks(3, talk, NULL); }

static void exchange_at_once(Rank* rank) {
  const int32_t peer = 1 - rank->rank;
  int32_t given[2] = {10 + rank->rank, 20 + rank->rank};
  int32_t taken[2] = {0, 0};
  int32_t sum = 1;
  mccl_work* all = NULL;
  mccl_work* one = NULL;
  mccl_call_options options = call_options();
  int32_t done = 9;
  options.flags = MCCL_CALLER_WAITS;
  CHECK_OK(mccl_begin_coalescing(rank->world));
  CHECK_OK(mccl_send(rank->world, &given[0], 1, MCCL_I32, peer, 0, NULL, NULL));
  CHECK_OK(mccl_recv(rank->world, &taken[0], 1, MCCL_I32, peer, 0, NULL, NULL));
  CHECK_OK(mccl_send(rank->world, &given[1], 1, MCCL_I32, peer, 1, NULL, NULL));
  CHECK_OK(mccl_recv(rank->world, &taken[1], 1, MCCL_I32, peer, 1, NULL, &one));
  CHECK_OK(mccl_all_reduce(rank->world, &sum, &sum, 1, MCCL_I32, MCCL_SUM, &options, NULL));
  CHECK_OK(mccl_work_test(one, &done));
  CHECK(done == 0);
  CHECK_REFUSED(mccl_work_wait(one, 0), "belongs to a call in an open batch");
  CHECK_REFUSED(mccl_work_all((const mccl_work* const*)&one, 1, &all),
                "works[0] belongs to a call");
  CHECK_OK(mccl_end_coalescing(rank->world, &all));
  CHECK_OK(mccl_work_wait(all, 0));
  CHECK_OK(mccl_work_wait(one, 0));
  CHECK(mccl_work_source(one) == peer);
  CHECK(taken[0] == 10 + peer && taken[1] == 20 + peer && sum == 2);
  mccl_work_destroy(one);
  mccl_work_destroy(all);

  CHECK_OK(mccl_begin_coalescing(rank->world));
  CHECK_OK(mccl_all_reduce(rank->world, &sum, &sum, 1, MCCL_I32, MCCL_SUM, NULL, NULL));
  CHECK(sum == 2);
  CHECK_OK(mccl_end_coalescing(rank->world, NULL));
  CHECK(sum == 4);
  CHECK_OK(mccl_all_reduce(rank->world, &sum, &sum, 1, MCCL_I32, MCCL_SUM, NULL, NULL));
  CHECK(sum == 8); /* calls block again */
}

void c_messages_coalesced(void) { run_ranks(2, exchange_at_once, NULL); }

static void coalesce_wrongly(Rank* rank) {
  mccl_work* work = NULL;
  mccl_group* part = NULL;
  CHECK_REFUSED(mccl_end_coalescing(rank->world, &work), "not begun");
  CHECK(work == NULL);
  CHECK_OK(mccl_begin_coalescing(rank->world));
  CHECK_REFUSED(mccl_begin_coalescing(rank->world), "already begun a batch");
  CHECK_REFUSED(mccl_group_split(rank->world, 0, 0, &part), "mccl_end_coalescing");
  CHECK_OK(mccl_end_coalescing(rank->world, &work)); /* the batch is empty */
  CHECK_OK(mccl_work_wait(work, 0));
  mccl_work_destroy(work);
}

void c_messages_errors_in_coalescing(void) { run_ranks(2, coalesce_wrongly, NULL); }
