#include <string.h>

#include "c_api/c_test.h"

static void divide(Rank* rank) {
  const int32_t outer[] = {2, 0};
  const int32_t unknown[] = {0, 7};
  mccl_group* part = NULL;
  mccl_group* named = NULL;
  mccl_group* none = NULL;
  int32_t sum = 1;
  CHECK_OK(mccl_group_split(rank->world, rank->rank % 2, -rank->rank, &part));
  CHECK(mccl_group_size(part) == (rank->rank % 2 == 0 ? 2 : 1));
  CHECK(mccl_group_rank(part) == (rank->rank == 0 ? 1 : 0));
  CHECK_OK(mccl_all_reduce(part, &sum, &sum, 1, MCCL_I32, MCCL_SUM, NULL, NULL));
  CHECK(sum == mccl_group_size(part));
  CHECK_OK(mccl_group_split(rank->world, rank->rank == 1 ? -1 : 0, 0, &named));
  CHECK((named == NULL) == (rank->rank == 1));
  mccl_group_destroy(named);
  named = NULL;
  if (rank->rank != 1) {
    CHECK_OK(mccl_context_group(rank->context, "outer", outer, 2, 30000, &named));
    CHECK(strcmp(mccl_group_name(named), "outer") == 0);
    CHECK(mccl_group_rank(named) == (rank->rank == 2 ? 0 : 1));
    CHECK_REFUSED(mccl_context_group(rank->context, "outer", outer, 2, 0, &none), "outer");
    CHECK_OK(mccl_barrier(named, NULL, NULL));
    mccl_group_destroy(named);
  }
  CHECK_REFUSED(mccl_context_group(rank->context, "x", unknown, 2, 0, &none), "7");
  CHECK_REFUSED(mccl_context_group(rank->context, "x", outer, (size_t)-1, 0, &none), "members");
  CHECK_REFUSED(mccl_context_group(rank->context, "x", NULL, 2, 0, &none), "members is NULL");
  CHECK_REFUSED(mccl_context_group(rank->context, NULL, outer, 2, 0, &none), "name is NULL");
  CHECK(none == NULL);
  mccl_group_destroy(part);
}

void c_group_parts(void) { run_ranks(3, divide, NULL); }

/* No rank has died, so all ranks are left. Deaths are tested in tests/backend/shrink_test.cpp. */
static void shrink(Rank* rank) {
  mccl_group* rest = NULL;
  int32_t sum = 1;
  CHECK_REFUSED(mccl_group_shrink(rank->world, 0, NULL), "rest is NULL");
  CHECK_REFUSED(mccl_group_shrink(NULL, 0, &rest), "group is NULL");
  CHECK_OK(mccl_group_shrink(rank->world, 30000, &rest));
  CHECK(mccl_group_size(rest) == 3);
  CHECK(mccl_group_rank(rest) == rank->rank);
  CHECK_OK(mccl_all_reduce(rest, &sum, &sum, 1, MCCL_I32, MCCL_SUM, NULL, NULL));
  CHECK(sum == 3);
  mccl_group_destroy(rest);
  if (rank->rank == 0) {
    CHECK_STATUS(mccl_group_shrink(rank->world, 1, &rest), MCCL_ERROR_TIMEOUT);
    CHECK_TEXT(mccl_last_error(), "ranks 1, 2 did not call shrink");
    CHECK(rest == NULL);
  }
  CHECK_OK(mccl_barrier(rank->world, NULL, NULL));
}

void c_group_the_ranks_that_are_left(void) { run_ranks(3, shrink, NULL); }

static void abort_one(Rank* rank) {
  mccl_group* part = NULL;
  char text[1024] = "";
  float value = 0;
  CHECK_OK(mccl_group_split(rank->world, 0, rank->rank, &part));
  CHECK_OK(mccl_group_failure(part, text, sizeof text, NULL));
  CHECK(strcmp(text, "") == 0);
  CHECK_OK(mccl_barrier(rank->world, NULL, NULL)); /* keeps rank 0 from aborting it earlier */
  CHECK_REFUSED(mccl_group_abort(part, NULL), "reason is NULL");
  if (rank->rank == 0) {
    CHECK_OK(mccl_group_abort(part, "enough of it"));
  } else {
    CHECK_STATUS(mccl_recv(part, &value, 1, MCCL_F32, 0, 0, NULL, NULL), MCCL_ERROR_ABORTED);
    CHECK_TEXT(mccl_last_error(), "enough of it");
  }
  CHECK_STATUS(mccl_barrier(part, NULL, NULL), MCCL_ERROR_ABORTED);
  CHECK_OK(mccl_group_failure(part, text, sizeof text, NULL));
  CHECK_TEXT(text, "enough of it");
  mccl_group_destroy(part);
}

void c_group_an_abort_ends_it_everywhere(void) { run_ranks(2, abort_one, NULL); }
