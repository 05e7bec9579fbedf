#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "c_api/c_test.h"

static void check_store(mccl_store* store, mccl_store* seen_by) {
  char value[8] = {0};
  size_t bytes = 0;
  int64_t sum = 0;
  CHECK_OK(mccl_store_set(store, "bytes", "a\0b", 3));
  CHECK_OK(mccl_store_get(seen_by, "bytes", 0, value, sizeof value, &bytes));
  CHECK(bytes == 3 && memcmp(value, "a\0b", 3) == 0);
  CHECK_OK(mccl_store_get(seen_by, "bytes", -1, NULL, 0, &bytes));
  CHECK(bytes == 3);
  CHECK_OK(mccl_store_set(store, "nothing", NULL, 0));
  CHECK_OK(mccl_store_get(seen_by, "nothing", INT64_MAX, NULL, 0, NULL));
  CHECK_OK(mccl_store_add(store, "counter", 3, &sum));
  CHECK(sum == 3);
  CHECK_OK(mccl_store_add(seen_by, "counter", -1, NULL));
  CHECK_OK(mccl_store_add(store, "counter", 0, &sum));
  CHECK(sum == 2);
}

void c_store_values_and_counters(void) {
  mccl_store* store = NULL;
  CHECK_OK(mccl_store_memory(&store));
  check_store(store, store);
  mccl_store_destroy(store);
}

void c_store_over_tcp(void) {
  mccl_store* served = NULL;
  mccl_store* client = NULL;
  char address[64];
  free_address(address, sizeof address);
  if (CHECK_OK(mccl_store_tcp(address, 0, "key", 0, &served)) &&
      CHECK_OK(mccl_store_tcp(address, 1, "key", 0, &client))) {
    check_store(client, served);
  }
  mccl_store_destroy(client);
  mccl_store_destroy(served);
}

/* A client that does not encrypt is refused, so a client that is accepted is encrypted. */
void c_store_encrypted(void) {
  mccl_store* served = NULL;
  mccl_store* client = NULL;
  mccl_store* plain = NULL;
  char address[64];
  free_address(address, sizeof address);
  setenv("MCCL_ENCRYPTION", "on", 1);
  if (CHECK_OK(mccl_store_tcp(address, 0, "key", 0, &served)) &&
      CHECK_OK(mccl_store_tcp(address, 1, "key", 0, &client))) {
    check_store(client, served);
    unsetenv("MCCL_ENCRYPTION");
    CHECK_STATUS(mccl_store_tcp(address, 2, "key", 0, &plain), MCCL_ERROR_PEER);
    CHECK_TEXT(mccl_last_error(), "encryption (rank 2 has off, rank 0 has on)");
    CHECK(plain == NULL);
  }
  unsetenv("MCCL_ENCRYPTION");
  mccl_store_destroy(client);
  mccl_store_destroy(served);
}

void c_store_errors_name_the_fault(void) {
  mccl_store* store = NULL;
  mccl_store* none = NULL;
  char value[2];
  size_t bytes = 0;
  int64_t sum = 7;
  CHECK_OK(mccl_store_memory(&store));
  CHECK_STATUS(mccl_store_get(store, "never", 1, value, 2, &bytes), MCCL_ERROR_TIMEOUT);
  CHECK_TEXT(mccl_last_error(), "never");
  CHECK_OK(mccl_store_set(store, "long", "abc", 3));
  CHECK_STATUS(mccl_store_get(store, "long", 0, value, 2, &bytes), MCCL_ERROR_NO_ROOM);
  CHECK(bytes == 3);
  CHECK_REFUSED(mccl_store_get(store, "long", 0, NULL, 2, &bytes), "value is NULL");
  CHECK_REFUSED(mccl_store_get(store, "long", 0, NULL, 0, NULL), "bytes");
  CHECK_REFUSED(mccl_store_get(store, NULL, 0, value, 2, &bytes), "key is NULL");
  CHECK_REFUSED(mccl_store_set(store, NULL, "x", 1), "key is NULL");
  CHECK_REFUSED(mccl_store_set(store, "x", NULL, 1), "value is NULL");
  CHECK_REFUSED(mccl_store_add(store, NULL, 1, &sum), "key is NULL");
  CHECK_REFUSED(mccl_store_add(store, "long", 1, &sum), "long");
  CHECK(sum == 0);
  CHECK_REFUSED(mccl_store_tcp(NULL, 0, NULL, 0, &none), "address is NULL");
  CHECK_REFUSED(mccl_store_tcp("127.0.0.1:1", -1, NULL, 0, &none), "rank is -1");
  CHECK_REFUSED(mccl_store_tcp("no port", 0, NULL, 0, &none), "no port");
  CHECK(none == NULL);
  mccl_store_destroy(store);
}
