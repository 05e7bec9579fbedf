// Tests messages of the native engine: credit, frames, and the errors on both ranks.
#include <atomic>
#include <thread>

#include "support/ranks.h"

namespace mccl {
namespace {

using testing::run_failing_ranks;
using testing::run_ranks;
using testing::test_config;

std::vector<std::int32_t> numbers(std::size_t count, int first) {
  std::vector<std::int32_t> data(count);
  for (std::size_t i = 0; i < count; ++i) data[i] = first + static_cast<std::int32_t>(i);
  return data;
}

Buffer buffer(std::vector<std::int32_t>& data) { return {data.data(), data.size(), DType::i32}; }

TEST(PointToPoint, ManySmallMessagesBeforeAnyReceive) {
  run_ranks(2, [](Context& context) {
    Group& group = *context.world();
    constexpr std::size_t kMessages = 400;  // 32 KiB each: three times the eager credit
    std::vector<std::int32_t> data = numbers(8192, 1);
    std::vector<Work> works;
    if (group.rank() == 0) {
      for (std::size_t i = 0; i < kMessages; ++i) works.push_back(group.send(buffer(data), 1, 1));
      std::vector<std::int32_t> last = numbers(3, 5);
      works.push_back(group.send(buffer(last), 1, 2));
      for (const Work& work : works) work.wait();
    } else {
      std::vector<std::int32_t> last(3);
      group.recv(buffer(last), 0, 2).wait();  // its message overtakes all others
      ASSERT_EQ(last, numbers(3, 5));
      for (std::size_t i = 0; i < kMessages; ++i) {
        std::vector<std::int32_t> got(8192, -1);
        group.recv(buffer(got), 0, 1).wait();
        ASSERT_EQ(got, data);
      }
    }
  });
}

const CallOptions kWaits{.caller_waits = true};

/// The thread that drives leaves while the call of the other thread is pending.
TEST(PointToPoint, TwoThreadsThatWaitForMessagesOfOnePeer) {
  constexpr std::uint32_t kRounds = 50;
  run_ranks(2, [](Context& context) {
    Group& group = *context.world();
    std::vector<std::int32_t> sent = numbers(16'384, 1);  // 64 KiB
    if (group.rank() == 0) {
      for (std::uint32_t round = 0; round < kRounds; ++round) {
        for (const std::uint32_t tag : {round % 2, 1 - round % 2}) {
          group.send(buffer(sent), 1, tag, kWaits).wait();
          std::vector<std::int32_t> answer(1);
          group.recv(buffer(answer), 1, tag, kWaits).wait();
        }
      }
      return;
    }
    const auto receive = [&](std::uint32_t tag) {
      for (std::uint32_t round = 0; round < kRounds; ++round) {
        std::vector<std::int32_t> got(sent.size());
        group.recv(buffer(got), 0, tag, kWaits).wait();
        EXPECT_EQ(got, sent);
        std::vector<std::int32_t> answer = {1};
        group.send(buffer(answer), 0, tag, kWaits).wait();
      }
    };
    std::thread other(receive, 1);
    receive(0);
    other.join();
  });
}

TEST(PointToPoint, ASendWhoseWaitHasTimedOutGoesOn) {
  run_ranks(
      2,
      [](Context& context) {
        Group& group = *context.world();
        std::vector<std::int32_t> sent = numbers(1 << 20, 1), got(sent.size());
        std::vector<std::int32_t> signal(1);
        if (group.rank() == 0) {
          const Work send = group.send(buffer(sent), 1, 0, kWaits);
          EXPECT_THROW(send.wait(std::chrono::milliseconds{1}), TimeoutError);
          group.send(buffer(signal), 1, 1, kWaits).wait();
          while (!send.done()) std::this_thread::yield();
        } else {
          group.recv(buffer(signal), 0, 1).wait();
          group.recv(buffer(got), 0, 0).wait();
          EXPECT_EQ(got, sent);
        }
      },
      [](int) {
        Config config = test_config();
        config.cross_memory = "off";  // The sender must write the pieces.
        return config;
      });
}

/// The receives of a batch first look for their messages on the caller's thread.
TEST(PointToPoint, ABatchReportsTheErrorOfItsCall) {
  run_failing_ranks(2, [](Context& context) {
    Group& group = *context.world();
    std::vector<std::int32_t> sent = numbers(8, 1), first(4), second(4);
    if (group.rank() == 0) {
      group.send(buffer(sent), 1, 0).wait();
      EXPECT_THROW(group.barrier().wait(), MismatchError);
      return;
    }
    std::atomic<int> callbacks{0};
    group.begin_coalescing();
    const Work one = group.recv(buffer(first), 0, 0, kWaits);
    const Work two = group.recv(buffer(second), 0, 1, kWaits);
    for (const Work& work : {one, two}) work.on_done([&](std::exception_ptr) { ++callbacks; });
    const Work all = group.end_coalescing();
    EXPECT_THROW(all.wait(), MismatchError);
    EXPECT_THROW(one.wait(), MismatchError);
    EXPECT_THROW(two.wait(), MismatchError);
    while (callbacks < 2) std::this_thread::yield();
  });
}

TEST(PointToPoint, ACallbackOfABatchSendsAfterTheBatch) {
  run_ranks(2, [](Context& context) {
    Group& group = *context.world();
    std::vector<std::int32_t> one{1}, two{2}, three{3}, got{0};
    group.barrier().wait();
    if (group.rank() == 1) {
      for (int i = 1; i <= 4; ++i) {
        group.recv(buffer(got), 0, 0).wait();
        EXPECT_EQ(got[0], i == 1 ? 1 : i - 1);
      }
      return;
    }
    group.send(buffer(one), 1, 0).wait();  // connects the ranks
    Work later;
    std::atomic<bool> sent{false};
    group.begin_coalescing();
    const Work first = group.send(buffer(one), 1, 0, kWaits);
    group.send(buffer(two), 1, 0, kWaits);
    first.on_done([&](std::exception_ptr) {
      later = group.send(buffer(three), 1, 0);
      sent = true;
    });
    group.end_coalescing().wait();
    while (!sent) std::this_thread::yield();
    later.wait();
  });
}

/// Two receives are posted together. The second fails the group, but the first has its data and
/// completes.
TEST(PointToPoint, ACompleteReceiveSucceedsIfTheNextFails) {
  run_failing_ranks(2, [](Context& context) {
    Group& group = *context.world();
    std::vector<std::int32_t> good = numbers(4, 1), bad = numbers(5, 2);
    if (group.rank() == 0) {
      group.send(buffer(good), 1, 0).wait();
      group.send(buffer(bad), 1, 0).wait();
      group.barrier().wait();
      return;
    }
    std::vector<std::int32_t> got(4, -1), other(4, -1);
    group.begin_coalescing();
    const Work first = group.recv(buffer(got), 0, 0);
    const Work second = group.recv(buffer(other), 0, 0);
    group.end_coalescing();
    EXPECT_THROW(second.wait(std::chrono::seconds(20)), MismatchError);
    EXPECT_NO_THROW(first.wait(std::chrono::seconds(20)));
    EXPECT_EQ(got, good);
  });
}

TEST(PointToPoint, EverySizeWhereFramesAreSmall) {
  for (const char* transport : {"tcp", "shm"}) {
    run_ranks(
        2,
        [](Context& context) {
          Group& group = *context.world();
          for (const std::size_t size : {1'023, 1'024, 1'025, 5'000, 8'192, 8'193}) {
            std::vector<std::int32_t> data = numbers(size, 3);
            if (group.rank() == 0) {
              group.send(buffer(data), 1, 7).wait();
            } else {
              std::vector<std::int32_t> got(size, -1);
              group.recv(buffer(got), 0, 7).wait();
              ASSERT_EQ(got, data);
            }
          }
        },
        [transport](int) {
          Config config = test_config();
          config.transport = transport;
          config.chunk_bytes = 4 << 10;
          return config;
        });
  }
}

TEST(PointToPoint, SizesThatDifferFailBothRanks) {
  const std::vector<std::string> errors = run_failing_ranks(2, [](Context& context) {
    Group& group = *context.world();
    std::vector<std::int32_t> data(group.rank() == 0 ? 100'000 : 99'999);
    if (group.rank() == 0) {
      group.send(buffer(data), 1, 0).wait();
    } else {
      group.recv(buffer(data), 0, 0).wait();
    }
  });
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("99999 i32"), std::string::npos) << error;
    EXPECT_NE(error.find("100000 i32"), std::string::npos) << error;
  }
}

TEST(PointToPoint, ASmallMessageOfTheWrongSizeFailsTheReceiver) {
  const std::vector<std::string> errors = run_failing_ranks(2, [](Context& context) {
    Group& group = *context.world();
    std::vector<std::int32_t> data(group.rank() == 0 ? 4 : 5);
    if (group.rank() == 0) {
      group.send(buffer(data), 1, 0).wait();
      group.barrier().wait();
    } else {
      group.recv(buffer(data), 0, 0).wait();
    }
  });
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("rank 0 sent 4 i32"), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace mccl
