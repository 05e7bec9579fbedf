#include "turns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

namespace mccl_mlx {
namespace {

/// Runs tasks on a thread in the order in which they were enqueued, like a stream of MLX.
class Stream {
 public:
  using Task = std::function<void()>;

  Stream() : thread_([this] { run(); }) {}
  ~Stream() {
    enqueue(nullptr);
    thread_.join();
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void enqueue(Task task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    wake_.notify_one();
  }

 private:
  void run() {
    while (true) {
      Task task;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [this] { return !tasks_.empty(); });
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      if (!task) return;
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> tasks_;  // guarded by mutex_
  std::thread thread_;
};

/// A group: its queue, the lock under which turns are taken, and the operations in the order in
/// which they started.
struct Group {
  std::shared_ptr<TurnQueue> queue = std::make_shared<TurnQueue>();
  std::mutex order;
  int taken = 0;             // guarded by order
  std::vector<int> started;  // guarded by the turn

  void run_on(Stream& stream, bool dropped) {
    const std::lock_guard lock(order);
    auto turn = std::make_shared<Turn>(queue);
    const int number = taken++;
    if (dropped) return;
    stream.enqueue([this, turn = std::move(turn), number] {
      turn->await();
      started.push_back(number);
      turn->end();
    });
  }
};

TEST(Turns, StartInOrderOnAnyStream) {
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    Group group;
    {
      std::vector<Stream> streams(4);
      for (int i = 0; i < 200; ++i) group.run_on(streams[random() % 4], false);
    }
    ASSERT_EQ(group.started.size(), 200U);
    for (int i = 0; i < 200; ++i) EXPECT_EQ(group.started[static_cast<std::size_t>(i)], i);
  }
}

TEST(Turns, OperationsThatNeverRunBlockNoOthers) {
  std::mt19937 random(11);
  Group group;
  int kept = 0;
  {
    std::vector<Stream> streams(3);
    for (int i = 0; i < 300; ++i) {
      const bool dropped = random() % 3 == 0;
      kept += dropped ? 0 : 1;
      group.run_on(streams[random() % 3], dropped);
    }
  }
  EXPECT_EQ(group.started.size(), static_cast<std::size_t>(kept));
  EXPECT_TRUE(std::is_sorted(group.started.begin(), group.started.end()));
}

/// Threads that evaluate concurrently enqueue on the same streams for the same groups.
TEST(Turns, SeveralThreadsStreamsAndGroupsDoNotDeadlock) {
  constexpr int kGroups = 3;
  constexpr int kThreads = 4;
  constexpr int kOperations = 300;
  std::vector<Group> groups(kGroups);
  {
    std::vector<Stream> streams(4);
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        std::mt19937 random(static_cast<unsigned>(thread));
        for (int i = 0; i < kOperations; ++i)
          groups[random() % kGroups].run_on(streams[random() % 4], random() % 10 == 0);
      });
    }
    for (auto& thread : threads) thread.join();
  }
  for (const Group& group : groups)
    EXPECT_TRUE(std::is_sorted(group.started.begin(), group.started.end()));
}

TEST(Turns, AnErrorEndsATurn) {
  const auto queue = std::make_shared<TurnQueue>();
  try {
    const Turn turn(queue);
    turn.await();
    throw std::runtime_error("the call failed");
  } catch (const std::runtime_error&) {
  }
  Turn(queue).await();
}

TEST(Turns, ATurnThatEndsBeforeItComesIsSkipped) {
  const auto queue = std::make_shared<TurnQueue>();
  auto first = std::make_unique<Turn>(queue);
  auto second = std::make_unique<Turn>(queue);
  const Turn third(queue);
  second.reset();
  first.reset();
  third.await();
}

}  // namespace
}  // namespace mccl_mlx
