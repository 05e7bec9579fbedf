#include "base/keep.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace mccl {
namespace {

struct Counted {
  explicit Counted(std::atomic<int>& count) : alive(&count) { ++*alive; }
  ~Counted() { --*alive; }
  std::atomic<int>* alive;
};

TEST(Keep, ObjectsKeptByManyThreadsAreNeverDestroyed) {
  static std::atomic<int> alive{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 8; ++thread)
    threads.emplace_back([] {
      for (int i = 0; i < 100; ++i) keep_for_ever(std::make_unique<Counted>(alive));
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(alive, 800);
}

}  // namespace
}  // namespace mccl
