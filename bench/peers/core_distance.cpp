// Prints the round-trip time in nanoseconds of a flag in memory that two cores write in turn: the
// median of several tries between the first two cores that this process may use. Prints nothing if
// there is only one.
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

namespace {

constexpr int kTries = 5;
constexpr std::uint64_t kRounds = 4000;
constexpr std::size_t kLine = 128;  ///< Two cache lines, since processors fetch pairs.

struct alignas(kLine) Flag {
  std::atomic<std::uint64_t> count{0};
};

std::vector<int> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

/// Pins this thread to the core. Returns false on failure.
bool stay_on(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  return pthread_setaffinity_np(pthread_self(), sizeof set, &set) == 0;
}

void await(const Flag& flag, std::uint64_t count) {
  while (flag.count.load(std::memory_order_acquire) != count) {
  }
}

}  // namespace

int main() {
  const std::vector<int> cores = allowed_cores();
  if (cores.size() < 2) return 0;
  if (!stay_on(cores[1]) || !stay_on(cores[0])) return 1;
  Flag there, back;
  std::thread other([&] {
    stay_on(cores[1]);
    for (std::uint64_t i = 1; i <= kTries * kRounds; ++i) {
      await(there, i);
      back.count.store(i, std::memory_order_release);
    }
  });
  std::vector<double> nanoseconds;
  std::uint64_t count = 0;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const auto begin = std::chrono::steady_clock::now();
    for (std::uint64_t i = 0; i < kRounds; ++i) {
      there.count.store(++count, std::memory_order_release);
      await(back, count);
    }
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    nanoseconds.push_back(took.count() / kRounds);
  }
  other.join();
  std::nth_element(nanoseconds.begin(), nanoseconds.begin() + kTries / 2, nanoseconds.end());
  std::printf("%.0f\n", nanoseconds[kTries / 2]);
}
