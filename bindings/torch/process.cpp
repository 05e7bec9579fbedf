#include "process.h"

#include <pthread.h>

#include <atomic>

namespace mccl_torch {
namespace {

std::atomic<std::uint32_t> forks{0};

[[maybe_unused]] const int registered =
    pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

std::uint32_t forks_so_far() { return forks.load(std::memory_order_relaxed); }

}  // namespace mccl_torch
