/* A rank of a job of three. The rank that the argument names kills itself. The others continue
 * without it, and then with the process that the launcher starts in its place.
 */
#define _POSIX_C_SOURCE 200809L

#include <mccl/c.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 100000, LIMIT_MS = 60000 };

static void check(mccl_status status) {
  if (status == MCCL_OK) return;
  fprintf(stderr, "%s: %s\n", mccl_status_name(status), mccl_last_error());
  exit(EXIT_FAILURE);
}

/* Adds a number over all ranks of the group. The vector has COUNT elements, which must all have the
 * same sum. */
static mccl_status sum(mccl_group* group, int64_t number, int64_t* total) {
  static int64_t values[COUNT];
  mccl_status status;
  int i;
  for (i = 0; i < COUNT; ++i) values[i] = number;
  status = mccl_all_reduce(group, values, values, COUNT, MCCL_I64, MCCL_SUM, NULL, NULL);
  *total = values[0];
  for (i = 1; status == MCCL_OK && i < COUNT; ++i) {
    if (values[i] == values[0]) continue;
    fprintf(stderr, "element %d differs\n", i);
    exit(EXIT_FAILURE);
  }
  return status;
}

/* Prints the place of this process in the group, and the sum of the ranks in the job. */
static void report(const char* when, mccl_group* group, int rank) {
  int64_t total = 0;
  check(sum(group, rank, &total));
  printf("%s: rank %d is %d of %d, sum %d\n", when, rank, (int)mccl_group_rank(group),
         (int)mccl_group_size(group), (int)total);
  fflush(stdout);
}

/* Makes calls until one fails, and checks that the error names the dead rank. */
static void wait_for_death(mccl_group* world, int dead) {
  mccl_status status = MCCL_OK;
  int64_t total = 0;
  char expected[32];
  while (status == MCCL_OK) status = sum(world, 1, &total);
  snprintf(expected, sizeof expected, "rank %d is gone", dead);
  if (status == MCCL_ERROR_PEER && strstr(mccl_last_error(), expected) != NULL) return;
  fprintf(stderr, "not the death of rank %d: ", dead);
  check(status);
}

int main(int argc, char** argv) {
  mccl_context* context = NULL;
  mccl_context* renewed = NULL;
  mccl_group* world = NULL;
  mccl_group* rest = NULL;
  const char* restarts = getenv("TORCHELASTIC_RESTART_COUNT");
  const int dead = argc == 2 ? atoi(argv[1]) : -1;
  int rank;

  check(mccl_context_from_environment(NULL, &context));
  check(mccl_context_world(context, &world));
  rank = (int)mccl_context_rank(context);
  if (restarts != NULL && strcmp(restarts, "0") == 0) {
    check(mccl_barrier(world, NULL, NULL));
    if (rank == dead) kill(getpid(), SIGKILL);
    wait_for_death(world, dead);
    check(mccl_group_shrink(world, LIMIT_MS, &rest));
    report("shrunk", rest, rank);
    check(mccl_context_reconfigure(context, LIMIT_MS, &renewed));
    mccl_group_destroy(rest);
    mccl_group_destroy(world);
    mccl_context_destroy(context);
    context = renewed;
    check(mccl_context_world(context, &world));
  }
  report("renewed", world, rank);
  check(mccl_barrier(world, NULL, NULL));
  mccl_group_destroy(world);
  mccl_context_destroy(context);
  return EXIT_SUCCESS;
}
