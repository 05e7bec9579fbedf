/* Sums a vector over all processes, and prints errors. Build it as docs/cpp-and-c.md describes,
 * then run mccl launch -n 2 ./all_reduce or start one process per rank, in two terminals:
 *   MCCL_RANK=0 MCCL_WORLD_SIZE=2 MCCL_ROOT=127.0.0.1:29700 ./all_reduce
 *   MCCL_RANK=1 MCCL_WORLD_SIZE=2 MCCL_ROOT=127.0.0.1:29700 ./all_reduce
 */
#include <mccl/c.h>
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 1000 };

/* Checks every call that can fail. Exiting is enough to stop the job: the other ranks notice the
 * exit, and their calls fail with a message that names this rank. */
static void check(mccl_status status) {
  if (status == MCCL_OK) return;
  fprintf(stderr, "%s: %s\n", mccl_status_name(status), mccl_last_error());
  exit(EXIT_FAILURE);
}

int main(void) {
  mccl_context* context = NULL;
  mccl_group* world = NULL;
  mccl_work* work = NULL;
  float values[COUNT];
  float largest = 0;
  int i;

  check(mccl_context_from_environment(NULL, &context));
  check(mccl_context_world(context, &world));
  for (i = 0; i < COUNT; ++i) values[i] = (float)(mccl_group_rank(world) + 1);

  /* Without a work object, the call blocks until it is complete. */
  check(mccl_all_reduce(world, values, values, COUNT, MCCL_F32, MCCL_SUM, NULL, NULL));

  /* With a work object, the call runs in the background. The program must not access the memory
   * until the call is complete. */
  check(mccl_all_reduce(world, values, &largest, 1, MCCL_F32, MCCL_MAX, NULL, &work));
  check(mccl_work_wait(work, 0));
  mccl_work_destroy(work);

  printf("rank %d of %d: sum %g, largest %g\n", (int)mccl_group_rank(world),
         (int)mccl_group_size(world), values[COUNT - 1], largest);
  check(mccl_barrier(world, NULL, NULL));
  mccl_group_destroy(world);
  mccl_context_destroy(context);
  return EXIT_SUCCESS;
}
