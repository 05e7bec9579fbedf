// Tests callbacks that drop their context, and processes that fork, while calls are in flight.
#include <fcntl.h>
#include <sys/wait.h>

#include <array>
#include <atomic>
#include <future>

#include "support/processes.h"
#include "support/ranks.h"

namespace mccl {
namespace {

using testing::run_ranks;
using testing::test_config;

Config shared_memory() {
  Config config = test_config();
  config.transport = "shm";
  config.calibrate = false;
  return config;
}

/// The callback runs on the progress thread, which cannot join itself.
TEST(Context, MayBeDroppedByACallback) {
  const std::shared_ptr<Store> store = make_memory_store();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&store, rank] {
      auto held = std::make_shared<std::shared_ptr<Context>>(
          Context::create({rank, 2, store, shared_memory(), nullptr}));
      auto dropped = std::make_shared<std::atomic<bool>>(false);
      float value = 1;
      const Buffer buffer{&value, 1, DType::f32};
      const Work work = (*held)->world()->all_reduce(buffer, buffer, ReduceKind::sum);
      work.on_done([held, dropped](const std::exception_ptr&) {
        held->reset();
        *dropped = true;
      });
      while (!*dropped) std::this_thread::yield();
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

/// A callback that holds the last reference releases it once the callback has run. At that time, no
/// thread holds a lock that the destructor needs.
TEST(Context, ACallbackMayHoldTheLastReference) {
  const std::shared_ptr<Store> store = make_memory_store();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&store, rank] {
      auto context = Context::create({rank, 2, store, shared_memory(), nullptr});
      const std::weak_ptr<Context> alive = context;
      std::promise<void> runs, may_end;
      float value = 1;
      const Buffer buffer{&value, 1, DType::f32};
      context->world()
          ->all_reduce(buffer, buffer, ReduceKind::sum)
          .on_done([context, &runs, end = may_end.get_future().share(),
                    caller = std::this_thread::get_id()](const std::exception_ptr&) {
            runs.set_value();
            // If the call was done already, this runs on the thread that would end the wait.
            if (std::this_thread::get_id() != caller) end.wait();
          });
      runs.get_future().wait();
      context.reset();
      may_end.set_value();
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
      while (!alive.expired() && std::chrono::steady_clock::now() < limit)
        std::this_thread::yield();
      EXPECT_TRUE(alive.expired()) << "the progress thread keeps the context alive";
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST(Context, FailsItsPendingCallsWhenItEnds) {
  const std::shared_ptr<Store> store = make_memory_store();
  std::vector<std::thread> ranks;
  std::array<std::string, 2> said;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      auto context = Context::create({rank, 2, store, shared_memory(), nullptr});
      float value = 0;
      const Work pending = context->world()->recv({&value, 1, DType::f32}, 1 - rank, 0);
      context.reset();
      try {
        pending.wait();
      } catch (const Error& error) {
        said[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  // Each rank gets one of two errors, depending on which rank ends first.
  for (const std::string& each : said) {
    EXPECT_TRUE(each.find("has shut down") != std::string::npos ||
                each.find("has left the job") != std::string::npos)
        << each;
  }
}

TEST(Context, SurvivesACallbackThatThrows) {
  run_ranks(
      2,
      [](Context& context) {
        float value = 1;
        const Buffer buffer{&value, 1, DType::f32};
        std::atomic<bool> called{false};
        const Work work = context.world()->all_reduce(buffer, buffer, ReduceKind::sum);
        work.on_done([&called](const std::exception_ptr&) {
          called = true;
          throw std::runtime_error("from a callback");
        });
        while (!called) std::this_thread::yield();
        context.world()->barrier().wait();
      },
      [](int) {
        Config config = shared_memory();
        config.log_level = "OFF";
        return config;
      });
}

/// In the child, the engine's descriptor numbers may be reused by the child's own files.
TEST(AChildOfAFork, WritesNothingIntoItsOwnFilesWhenItDropsAGroup) {
  run_ranks(2, [](Context& context) {
    auto group = context.group("other", {0, 1}, std::chrono::seconds(30));
    group->barrier().wait();
    if (context.rank() == 0) {
      context.before_fork();
      const pid_t child = ::fork();
      if (child == 0) {
        context.abandon_after_fork();
        int files[64];
        char name[] = "/tmp/mccl-fork-XXXXXX";
        const int file = ::mkstemp(name);
        ::unlink(name);
        for (int& each : files) each = ::dup(file);
        group.reset();
        ::_exit(::lseek(file, 0, SEEK_END) == 0 ? 0 : 1);
      }
      context.after_fork_in_parent();
      int status = 0;
      ::waitpid(child, &status, 0);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
          << "the child wrote into its own file";
    }
    group->barrier().wait();
  });
}

/// Making a group takes a lock. If another thread holds it during fork(), the child must find it
/// free.
TEST(AChildOfAFork, IsRefusedAGroupWhileOtherThreadsMakeSome) {
  const auto context = Context::create({0, 1, nullptr, test_config(), nullptr});
  std::atomic<bool> stop{false};
  std::thread maker([&] {
    for (int n = 0; !stop; ++n) context->group(std::to_string(n), {0}, std::chrono::seconds(1));
  });
  for (int i = 0; i < 50; ++i) {
    context->before_fork();
    const pid_t child = ::fork();
    if (child == 0) {
      context->abandon_after_fork();
      ::alarm(20);  // ends the child if a lock is held
      try {
        context->group("child", {0}, std::chrono::seconds(1));
      } catch (const InvalidArgument&) {
        ::_exit(0);
      }
      ::_exit(1);
    }
    context->after_fork_in_parent();
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "fork " << i;
  }
  stop = true;
  maker.join();
}

/// Another thread makes calls during the fork. No lock may stay held in the child.
TEST(AChildOfAFork, FindsNoLockHeld) {
  run_ranks(2, [](Context& context) {
    auto other = context.group("other", {0, 1}, std::chrono::seconds(30));
    std::atomic<bool> stop{false};
    std::thread busy([&] {
      float value = 1;
      const Buffer buffer{&value, 1, DType::f32};
      while (true) {
        std::int32_t goes_on = stop ? 0 : 1;
        const Buffer word{&goes_on, 1, DType::i32};
        context.world()->all_reduce(word, word, ReduceKind::min).wait();
        if (goes_on == 0) return;
        context.world()->all_reduce(buffer, buffer, ReduceKind::max).wait();
      }
    });
    for (int i = 0; i < 20; ++i) {
      context.before_fork();
      const pid_t child = ::fork();
      if (child == 0) {
        context.abandon_after_fork();
        ::alarm(20);  // ends the child if a lock is held
        try {
          other->barrier();
        } catch (const InvalidArgument&) {
          other.reset();
          ::_exit(0);
        }
        ::_exit(1);
      }
      context.after_fork_in_parent();
      int status = 0;
      ::waitpid(child, &status, 0);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    }
    stop = true;
    busy.join();
  });
}

/// Several threads may prepare a fork at the same time. Each stops the engine for a moment in turn.
TEST(AFork, MayBeOneOfSeveralAtATime) {
  run_ranks(2, [](Context& context) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&context] {
        for (int round = 0; round < 50; ++round) {
          context.before_fork();
          context.after_fork_in_parent();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    context.world()->barrier().wait();
  });
}

}  // namespace
}  // namespace mccl
