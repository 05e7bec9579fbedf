#include <pthread.h>
#include <string.h>

#include "c_api/c_test.h"

void c_values_versions_and_names(void) {
  CHECK(mccl_c_version() == MCCL_C_VERSION);
  CHECK(strchr(mccl_version(), '.') != NULL);
  CHECK(strcmp(mccl_status_name(MCCL_OK), "MCCL_OK") == 0);
  CHECK(strcmp(mccl_status_name(MCCL_ERROR_NO_ROOM), "MCCL_ERROR_NO_ROOM") == 0);
  CHECK(strcmp(mccl_status_name(MCCL_ERROR_INTERNAL), "MCCL_ERROR_INTERNAL") == 0);
  CHECK(strcmp(mccl_status_name(-1), "unknown status") == 0);
  CHECK(strcmp(mccl_status_name(11), "unknown status") == 0);
}

void c_values_types_and_reductions(void) {
  CHECK(mccl_dtype_size(MCCL_BOOL) == 1 && mccl_dtype_size(MCCL_BF16) == 2);
  CHECK(mccl_dtype_size(MCCL_F32) == sizeof(float) && mccl_dtype_size(MCCL_C128) == 16);
  CHECK(mccl_dtype_size(-1) == 0 && mccl_dtype_size(15) == 0 && mccl_dtype_size(INT32_MAX) == 0);
  CHECK(strcmp(mccl_dtype_name(MCCL_C64), "c64") == 0);
  CHECK(strcmp(mccl_dtype_name(INT32_MIN), "unknown dtype") == 0);
  CHECK(strcmp(mccl_reduce_op_name(MCCL_PREMUL_SUM), "premul_sum") == 0);
  CHECK(strcmp(mccl_reduce_op_name(9), "unknown reduction") == 0);
  CHECK(mccl_supports(MCCL_F32, MCCL_AVG) == 1 && mccl_supports(MCCL_F32, MCCL_BXOR) == 0);
  CHECK(mccl_supports(15, MCCL_SUM) == 0 && mccl_supports(MCCL_F32, -1) == 0);
}

static void* fail_elsewhere(void* argument) {
  (void)argument;
  CHECK(strcmp(mccl_last_error(), "") == 0);
  CHECK_REFUSED(mccl_barrier(NULL, NULL, NULL), "mccl_barrier");
  return NULL;
}

void c_values_an_error_is_the_threads_own(void) {
  pthread_t other;
  mccl_config* config = NULL;
  CHECK_REFUSED(mccl_config_defaults(NULL), "mccl_config_defaults: config is NULL");
  if (CHECK(pthread_create(&other, NULL, fail_elsewhere, NULL) == 0)) pthread_join(other, NULL);
  CHECK_TEXT(mccl_last_error(), "mccl_config_defaults");
  CHECK_OK(mccl_config_defaults(&config));
  CHECK_TEXT(mccl_last_error(), "mccl_config_defaults"); /* success leaves it unchanged */
  mccl_config_destroy(config);
}
