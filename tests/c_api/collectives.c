#include <string.h>

#include "c_api/c_test.h"

enum { RANKS = 3, COUNT = 5 };

/* Sets element i of rank r to 10 r + i + 1. These are small integers, whose sums are exact. */
static void fill(int32_t* data, int32_t rank, int count) {
  int i;
  for (i = 0; i < count; ++i) data[i] = 10 * rank + i + 1;
}

static int sum_at(int i) {
  int sum = 0;
  int32_t rank;
  for (rank = 0; rank < RANKS; ++rank) sum += 10 * rank + i + 1;
  return sum;
}

static void reduce_everything(Rank* rank) {
  int32_t in[RANKS * COUNT];
  int32_t out[RANKS * COUNT];
  mccl_group* world = rank->world;
  int i;
  fill(in, rank->rank, RANKS * COUNT);
  CHECK_OK(mccl_all_reduce(world, in, out, COUNT, MCCL_I32, MCCL_SUM, NULL, NULL));
  for (i = 0; i < COUNT; ++i) CHECK(out[i] == sum_at(i));
  CHECK_OK(mccl_all_reduce(world, in, out, COUNT, MCCL_I32, MCCL_MIN, NULL, NULL));
  for (i = 0; i < COUNT; ++i) CHECK(out[i] == i + 1);
  CHECK_OK(mccl_all_reduce(world, in, out, COUNT, MCCL_I32, MCCL_AVG, NULL, NULL));
  for (i = 0; i < COUNT; ++i) CHECK(out[i] == sum_at(i) / RANKS);

  memset(out, 0, sizeof out);
  CHECK_OK(mccl_reduce(world, in, out, COUNT, MCCL_I32, MCCL_MAX, 1, NULL, NULL));
  for (i = 0; i < COUNT; ++i) CHECK(out[i] == (rank->rank == 1 ? 10 * (RANKS - 1) + i + 1 : 0));

  CHECK_OK(mccl_reduce_scatter(world, in, out, COUNT, MCCL_I32, MCCL_SUM, NULL, NULL));
  for (i = 0; i < COUNT; ++i) CHECK(out[i] == sum_at(rank->rank * COUNT + i));

  memcpy(out, in, sizeof out); /* in place */
  CHECK_OK(mccl_all_reduce(world, out, out, COUNT, MCCL_I32, MCCL_SUM, NULL, NULL));
  for (i = 0; i < COUNT; ++i) CHECK(out[i] == sum_at(i));
  CHECK_OK(mccl_all_reduce(world, NULL, NULL, 0, MCCL_I32, MCCL_SUM, NULL, NULL));
}

void c_collectives_reductions(void) { run_ranks(RANKS, reduce_everything, NULL); }

static void premultiply(Rank* rank) {
  const size_t counts[RANKS] = {1, 0, 2};
  const double factor = rank->rank == 1 ? 10 : 1;
  mccl_call_options options = call_options();
  float in[3] = {1, 2, 3};
  float out[3] = {0, 0, 0};
  options.factor = &factor;
  CHECK_OK(mccl_all_reduce(rank->world, in, out, 3, MCCL_F32, MCCL_PREMUL_SUM, &options, NULL));
  CHECK(out[0] == 12 && out[1] == 24 && out[2] == 36);
  CHECK_OK(mccl_reduce(rank->world, in, out, 1, MCCL_F32, MCCL_PREMUL_SUM, 0, &options, NULL));
  CHECK(out[0] == 12);
  CHECK_OK(mccl_reduce_scatter(rank->world, in, out, 1, MCCL_F32, MCCL_PREMUL_SUM, &options, NULL));
  CHECK(out[0] == (float)(12 * (rank->rank + 1)));
  CHECK_OK(mccl_reduce_scatterv(rank->world, in, out, counts, MCCL_F32, MCCL_PREMUL_SUM, &options,
                                NULL));
  if (rank->rank == 2) CHECK(out[0] == 24 && out[1] == 36);
}

void c_collectives_premultiplied_sums(void) { run_ranks(RANKS, premultiply, NULL); }

static void move_evenly(Rank* rank) {
  int32_t part[COUNT];
  int32_t whole[RANKS * COUNT];
  int32_t expected[COUNT];
  int32_t r;
  fill(part, rank->rank, COUNT);
  memset(whole, 0, sizeof whole);
  CHECK_OK(mccl_all_gather(rank->world, part, whole, COUNT, MCCL_I32, NULL, NULL));
  for (r = 0; r < RANKS; ++r) {
    fill(expected, r, COUNT);
    CHECK(memcmp(whole + r * COUNT, expected, sizeof expected) == 0);
  }
  memset(part, 0, sizeof part);
  CHECK_OK(mccl_scatter(rank->world, whole, part, COUNT, MCCL_I32, 2, NULL, NULL));
  fill(expected, rank->rank, COUNT);
  CHECK(memcmp(part, expected, sizeof expected) == 0);
  memset(whole, 0, sizeof whole);
  CHECK_OK(mccl_gather(rank->world, part, whole, COUNT, MCCL_I32, 0, NULL, NULL));
  for (r = 0; r < RANKS; ++r) {
    fill(expected, r, COUNT);
    if (rank->rank != 0) memset(expected, 0, sizeof expected);
    CHECK(memcmp(whole + r * COUNT, expected, sizeof expected) == 0);
  }
  CHECK_OK(mccl_broadcast(rank->world, part, COUNT, MCCL_I32, 1, NULL, NULL));
  fill(expected, 1, COUNT);
  CHECK(memcmp(part, expected, sizeof expected) == 0);
}

void c_collectives_gathers_and_scatters(void) { run_ranks(RANKS, move_evenly, NULL); }

static void move_unevenly(Rank* rank) {
  const size_t counts[RANKS] = {2, 0, 3};
  const size_t mine = counts[rank->rank];
  int32_t part[3] = {0, 0, 0};
  int32_t whole[5] = {0, 0, 0, 0, 0};
  const int32_t expected[5] = {1, 2, 21, 22, 23};
  int32_t before = rank->rank == 2 ? 2 : 0;
  size_t i;
  fill(part, rank->rank, 3);
  CHECK_OK(mccl_all_gatherv(rank->world, part, whole, counts, MCCL_I32, NULL, NULL));
  CHECK(memcmp(whole, expected, sizeof expected) == 0);
  memset(part, 0, sizeof part);
  CHECK_OK(mccl_scatterv(rank->world, whole, part, counts, MCCL_I32, 0, NULL, NULL));
  CHECK(memcmp(part, expected + before, mine * sizeof part[0]) == 0);
  memset(whole, 0, sizeof whole);
  CHECK_OK(mccl_gatherv(rank->world, part, whole, counts, MCCL_I32, 1, NULL, NULL));
  if (rank->rank == 1) CHECK(memcmp(whole, expected, sizeof expected) == 0);
  memcpy(whole, expected, sizeof expected);
  CHECK_OK(mccl_reduce_scatterv(rank->world, whole, part, counts, MCCL_I32, MCCL_SUM, NULL, NULL));
  for (i = 0; i < mine; ++i) CHECK(part[i] == RANKS * expected[(size_t)before + i]);
}

void c_collectives_uneven(void) { run_ranks(RANKS, move_unevenly, NULL); }

static void exchange(Rank* rank) {
  int32_t in[2 * RANKS];
  int32_t out[2 * RANKS];
  size_t given[RANKS];
  size_t taken[RANKS];
  int32_t r;
  fill(in, rank->rank, 2 * RANKS);
  CHECK_OK(mccl_all_to_all(rank->world, in, out, 2, MCCL_I32, NULL, NULL));
  for (r = 0; r < RANKS; ++r) CHECK(out[2 * r] == 10 * r + 2 * rank->rank + 1);
  /* Rank r sends nothing to itself, two elements to rank 0, and one to each other rank. */
  for (r = 0; r < RANKS; ++r) {
    given[r] = r == rank->rank ? 0 : (r == 0 ? 2 : 1);
    taken[r] = r == rank->rank ? 0 : (rank->rank == 0 ? 2 : 1);
  }
  CHECK_OK(mccl_all_to_allv(rank->world, in, given, out, taken, MCCL_I32, NULL, NULL));
  if (rank->rank == 0) CHECK(out[0] == 11 && out[1] == 12 && out[2] == 21 && out[3] == 22);
  if (rank->rank == 1) CHECK(out[0] == 1 && out[1] == 23);
  if (rank->rank == 2) CHECK(out[0] == 2 && out[1] == 13);
}

void c_collectives_all_to_all(void) { run_ranks(RANKS, exchange, NULL); }

static void reduce_every_type(Rank* rank) {
  mccl_dtype dtype;
  mccl_reduce_op op;
  for (dtype = MCCL_BOOL; dtype <= MCCL_C128; ++dtype) {
    for (op = MCCL_SUM; op < MCCL_PREMUL_SUM; ++op) {
      unsigned char zero[16] = {0};
      unsigned char out[16];
      memset(out, 255, sizeof out);
      if (mccl_supports(dtype, op)) {
        CHECK_OK(mccl_all_reduce(rank->world, zero, out, 1, dtype, op, NULL, NULL));
        CHECK(memcmp(out, zero, mccl_dtype_size(dtype)) == 0);
      } else {
        CHECK_REFUSED(mccl_all_reduce(rank->world, zero, out, 1, dtype, op, NULL, NULL),
                      "not defined for");
      }
    }
  }
}

void c_collectives_every_type(void) { run_ranks(2, reduce_every_type, NULL); }

static void leave_out(Rank* rank) {
  const size_t counts[2] = {1, 1};
  int32_t mine = rank->rank + 1;
  int32_t all[2] = {0, 0};
  int32_t* roots = rank->rank == 0 ? all : NULL;
  CHECK_OK(mccl_gather(rank->world, &mine, roots, 1, MCCL_I32, 0, NULL, NULL));
  CHECK_OK(mccl_gatherv(rank->world, &mine, roots, counts, MCCL_I32, 0, NULL, NULL));
  if (roots) CHECK(all[0] == 1 && all[1] == 2);
  CHECK_OK(mccl_scatter(rank->world, roots, &mine, 1, MCCL_I32, 0, NULL, NULL));
  CHECK_OK(mccl_scatterv(rank->world, roots, &mine, counts, MCCL_I32, 0, NULL, NULL));
  CHECK(mine == rank->rank + 1);
  CHECK_OK(mccl_reduce(rank->world, &mine, roots, 1, MCCL_I32, MCCL_SUM, 0, NULL, NULL));
  if (roots) CHECK(all[0] == 3);
}

void c_collectives_only_the_root_needs_output(void) { run_ranks(2, leave_out, NULL); }
