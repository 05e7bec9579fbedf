#define _POSIX_C_SOURCE 200809L
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "c_api/c_test.h"

enum { MOST_RANKS = 16 };

typedef struct Thread {
  pthread_t thread;
  mccl_store* store;
  const char* const* settings;
  void (*body)(Rank*);
  Rank rank;
} Thread;

static void* run_rank(void* argument) {
  Thread* thread = argument;
  Rank* rank = &thread->rank;
  mccl_config* config = test_config();
  const mccl_context_options options =
      context_options(rank->rank, rank->size, thread->store, config);
  const char* const* setting;
  size_t failed = 0;
  for (setting = thread->settings; *setting; setting += 2) {
    CHECK_OK(mccl_config_set(config, setting[0], setting[1]));
  }
  if (CHECK_OK(mccl_context_create(&options, &rank->context)) &&
      CHECK_OK(mccl_context_world(rank->context, &rank->world))) {
    thread->body(rank);
    CHECK_OK(mccl_group_failure(rank->world, NULL, 0, &failed));
    if (failed == 0) CHECK_OK(mccl_barrier(rank->world, NULL, NULL));
  }
  mccl_group_destroy(rank->world);
  mccl_context_destroy(rank->context);
  mccl_config_destroy(config);
  return NULL;
}

void run_ranks(int32_t size, void (*body)(Rank*), void* user) {
  static const char* const none[] = {NULL};
  run_ranks_with(size, none, body, user);
}

void run_ranks_with(int32_t size, const char* const* settings, void (*body)(Rank*), void* user) {
  Thread threads[MOST_RANKS];
  mccl_store* store = NULL;
  int32_t i;
  memset(threads, 0, sizeof threads);
  if (!CHECK(size <= MOST_RANKS) || !CHECK_OK(mccl_store_memory(&store))) return;
  for (i = 0; i < size; ++i) {
    threads[i].store = store;
    threads[i].settings = settings;
    threads[i].body = body;
    threads[i].rank.rank = i;
    threads[i].rank.size = size;
    threads[i].rank.user = user;
    CHECK(pthread_create(&threads[i].thread, NULL, run_rank, &threads[i]) == 0);
  }
  for (i = 0; i < size; ++i) pthread_join(threads[i].thread, NULL);
  mccl_store_destroy(store);
}

mccl_config* test_config(void) {
  mccl_config* config = NULL;
  CHECK_OK(mccl_config_defaults(&config));
  CHECK_OK(mccl_config_set(config, "port_base", "0"));
  CHECK_OK(mccl_config_set(config, "timeout", "60"));
  CHECK_OK(mccl_config_set(config, "MCCL_CONNECT_TIMEOUT", "60"));
  CHECK_OK(mccl_config_set(config, "log_level", "OFF"));
  return config;
}

mccl_context_options context_options(int32_t rank, int32_t size, mccl_store* store,
                                     const mccl_config* config) {
  mccl_context_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.rank = rank;
  options.size = size;
  options.store = store;
  options.config = config;
  return options;
}

mccl_call_options call_options(void) {
  mccl_call_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  return options;
}

void free_address(char* text, size_t capacity) {
  struct sockaddr_in address;
  socklen_t length = sizeof address;
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  memset(&address, 0, sizeof address);
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(bind(listener, (struct sockaddr*)&address, length) == 0);
  CHECK(getsockname(listener, (struct sockaddr*)&address, &length) == 0);
  close(listener);
  snprintf(text, capacity, "127.0.0.1:%d", ntohs(address.sin_port));
}
