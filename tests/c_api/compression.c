#include <math.h>
#include <string.h>

#include "c_api/c_test.h"

enum { RANKS = 3, COUNT = 1024 };

/* Uses tcp, because ranks of one process share memory by default, where nothing is compressed. */
static const char* const kBetweenMachines[] = {"transport", "tcp", "compression_min_bytes", "0",
                                               NULL};

/* Returns values with about seven significant digits, so that every codec rounds them. */
static float given(int32_t rank, int i) { return (float)(rank + 1) + 0.001234F * (float)(i % 377); }

static float exact_sum(int i) {
  float sum = 0;
  int32_t r;
  for (r = 0; r < RANKS; ++r) sum += given(r, i);
  return sum;
}

static void fill(float* data, int32_t rank) {
  int i;
  for (i = 0; i < COUNT; ++i) data[i] = given(rank, i);
}

/* Returns the largest relative error of `out`. */
static float error_of(const float* out) {
  float most = 0;
  int i;
  for (i = 0; i < COUNT; ++i) most = fmaxf(most, fabsf(out[i] - exact_sum(i)) / exact_sum(i));
  return most;
}

static int equal_on_all_ranks(Rank* rank, const float* out) {
  static float all[RANKS][RANKS * COUNT]; /* one per rank, since ranks are threads */
  float* mine = all[rank->rank];
  int32_t r;
  int equal = 1;
  CHECK_OK(mccl_all_gather(rank->world, out, mine, COUNT, MCCL_F32, NULL, NULL));
  for (r = 1; r < RANKS; ++r) {
    equal = equal && memcmp(mine, mine + r * COUNT, COUNT * sizeof(float)) == 0;
  }
  return equal;
}

static void sum_in_every_codec(Rank* rank) {
  static const char* const names[] = {"fp16", "bf16", "int8", "fp8", "fp8_e5m2", "int4", "topk"};
  static const float errors[] = {1e-3F, 8e-3F, 2e-2F, 0.1F, 0.2F, 0.3F, 1.0F};
  mccl_call_options options = call_options();
  float in[COUNT];
  float out[COUNT];
  size_t i;
  fill(in, rank->rank);
  for (i = 0; i < sizeof names / sizeof names[0]; ++i) {
    options.compression = names[i];
    options.topk_ratio = i == 6 ? 0.1 : 0;
    CHECK_OK(mccl_all_reduce(rank->world, in, out, COUNT, MCCL_F32, MCCL_SUM, &options, NULL));
    CHECK(error_of(out) > 0 && error_of(out) <= errors[i]);
    CHECK(equal_on_all_ranks(rank, out));
  }
  options.topk_ratio = 0;
  options.compression = "none";
  CHECK_OK(mccl_all_reduce(rank->world, in, out, COUNT, MCCL_F32, MCCL_SUM, &options, NULL));
  CHECK(error_of(out) < 1e-6F);
}

void c_compression_every_codec(void) {
  run_ranks_with(RANKS, kBetweenMachines, sum_in_every_codec, NULL);
}

static void keep_what_is_left_out(Rank* rank) {
  mccl_call_options options = call_options();
  float in[COUNT];
  float out[COUNT];
  float left[COUNT];
  float all_left[COUNT];
  float most = 0;
  int i;
  fill(in, rank->rank);
  options.compression = "int8";
  options.left_out = left;
  CHECK_OK(mccl_all_reduce(rank->world, in, out, COUNT, MCCL_F32, MCCL_SUM, &options, NULL));
  CHECK_OK(mccl_all_reduce(rank->world, left, all_left, COUNT, MCCL_F32, MCCL_SUM, NULL, NULL));
  CHECK(error_of(out) > 1e-4F);
  for (i = 0; i < COUNT; ++i) most = fmaxf(most, fabsf(out[i] + all_left[i] - exact_sum(i)));
  CHECK(most < 1e-5F);
  options.compression = NULL;
  CHECK_OK(mccl_all_reduce(rank->world, in, out, COUNT, MCCL_F32, MCCL_SUM, &options, NULL));
  for (i = 0; i < COUNT; ++i) CHECK(left[i] == 0);
}

void c_compression_rounding_errors(void) {
  run_ranks_with(RANKS, kBetweenMachines, keep_what_is_left_out, NULL);
}

static void sum_in_a_group(Rank* rank) {
  static const int32_t everybody[RANKS] = {2, 1, 0};
  mccl_group_options options;
  mccl_call_options exactly = call_options();
  mccl_group* group = NULL;
  float in[COUNT];
  float out[COUNT];
  size_t bytes = 0;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.name = "rounded";
  options.members = everybody;
  options.count = RANKS;
  options.compression = "bf16";
  CHECK_OK(mccl_context_group_with(rank->context, &options, &group));
  CHECK(mccl_group_rank(group) == RANKS - 1 - rank->rank);
  fill(in, rank->rank);
  CHECK_OK(mccl_all_reduce(group, in, out, COUNT, MCCL_F32, MCCL_SUM, NULL, NULL));
  CHECK(error_of(out) > 1e-4F && error_of(out) < 1e-2F);
  CHECK_OK(mccl_group_bytes_to_sum(group, COUNT, MCCL_F32, MCCL_SUM, NULL, &bytes));
  CHECK(bytes == 2 * COUNT);
  exactly.compression = "none";
  CHECK_OK(mccl_group_bytes_to_sum(group, COUNT, MCCL_F32, MCCL_SUM, &exactly, &bytes));
  CHECK(bytes == 4 * COUNT);
  CHECK_OK(mccl_group_bytes_to_sum(group, COUNT, MCCL_I32, MCCL_SUM, NULL, &bytes));
  CHECK(bytes == 4 * COUNT);
  mccl_group_destroy(group);
}

void c_compression_of_a_group(void) {
  run_ranks_with(RANKS, kBetweenMachines, sum_in_a_group, NULL);
}

static void ask_wrongly(Rank* rank) {
  const int32_t alone[1] = {rank->rank};
  mccl_group* g = rank->world;
  mccl_group* none = NULL;
  mccl_group_options group;
  mccl_call_options options = call_options();
  float x[4] = {1, 2, 3, 4};
  float y[4];
  int32_t n[4] = {1, 2, 3, 4};
  size_t bytes = 1;
  options.compression = "int9";
  CHECK_REFUSED(mccl_all_reduce(g, x, y, 2, MCCL_F32, MCCL_SUM, &options, NULL), "mean int8");
  options.compression = "int8";
  CHECK_REFUSED(mccl_all_reduce(g, n, n, 4, MCCL_I32, MCCL_SUM, &options, NULL), "i32");
  CHECK_REFUSED(mccl_all_reduce(g, x, y, 4, MCCL_F32, MCCL_MAX, &options, NULL), "max");
  CHECK_REFUSED(mccl_broadcast(g, x, 4, MCCL_F32, 0, &options, NULL), "broadcast");
  options.topk_ratio = 0.5;
  CHECK_REFUSED(mccl_all_reduce(g, x, y, 4, MCCL_F32, MCCL_SUM, &options, NULL),
                "topk_ratio is 0.5");
  options.compression = NULL;
  CHECK_REFUSED(mccl_all_reduce(g, x, y, 4, MCCL_F32, MCCL_SUM, &options, NULL), "is NULL");
  options.compression = "topk";
  options.topk_ratio = 1.5;
  CHECK_REFUSED(mccl_all_reduce(g, x, y, 4, MCCL_F32, MCCL_SUM, &options, NULL), "1.5");
  options.topk_ratio = NAN;
  CHECK_REFUSED(mccl_all_reduce(g, x, y, 4, MCCL_F32, MCCL_SUM, &options, NULL), "nan");
  options = call_options();
  options.left_out = x;
  CHECK_REFUSED(mccl_all_reduce(g, x, y, 4, MCCL_F32, MCCL_SUM, &options, NULL), "overlaps");
  CHECK_REFUSED(mccl_barrier(g, &options, NULL), "left_out is set");
  CHECK_REFUSED(mccl_send(g, y, 1, MCCL_F32, 0, 0, &options, NULL), "left_out is set");
  CHECK_REFUSED(mccl_reduce(g, y, y, 1, MCCL_F32, MCCL_SUM, 0, &options, NULL), "left_out is set");
  CHECK_REFUSED(mccl_group_bytes_to_sum(g, 4, MCCL_F32, MCCL_SUM, NULL, NULL), "bytes is NULL");
  CHECK_REFUSED(mccl_group_bytes_to_sum(NULL, 4, MCCL_F32, MCCL_SUM, NULL, &bytes),
                "group is NULL");
  CHECK(bytes == 0);
  CHECK_REFUSED(mccl_context_group_with(rank->context, NULL, &none), "options is NULL");
  memset(&group, 0, sizeof group);
  group.struct_size = sizeof group;
  CHECK_REFUSED(mccl_context_group_with(rank->context, &group, &none), "options.name is NULL");
  group.name = "alone";
  CHECK_REFUSED(mccl_context_group_with(rank->context, &group, &none), "options.members is NULL");
  group.members = alone;
  group.count = (size_t)-1;
  CHECK_REFUSED(mccl_context_group_with(rank->context, &group, &none), "members for a job");
  group.count = 1;
  group.compression = "zip";
  CHECK_REFUSED(mccl_context_group_with(rank->context, &group, &none), "not a codec");
  group.compression = NULL;
  group.flags = 4;
  CHECK_REFUSED(mccl_context_group_with(rank->context, &group, &none), "flags is 0x4");
  CHECK(none == NULL);
}

void c_compression_errors_name_the_fault(void) {
  run_ranks_with(2, kBetweenMachines, ask_wrongly, NULL);
}
