// Messages between two ranks: matching, order, sizes, and that they never wait for one another.
#include "support/ranks.h"

namespace mccl {
namespace {

using testing::run_failing_ranks;
using testing::run_ranks;
using testing::test_config;

constexpr std::size_t kSizes[] = {0,    1,       8191,     8192,
                                  8193, 300'001, 3'000'000};  // eager, granted, pieces

std::vector<std::int32_t> numbers(std::size_t count, int first) {
  std::vector<std::int32_t> data(count);
  for (std::size_t i = 0; i < count; ++i) data[i] = first + static_cast<std::int32_t>(i);
  return data;
}

Buffer buffer(std::vector<std::int32_t>& data) { return {data.data(), data.size(), DType::i32}; }

TEST(PointToPoint, EverySizeBetweenEveryPair) {
  run_ranks(3, [](Context& context) {
    Group& group = *context.world();
    for (const std::size_t size : kSizes) {
      for (int from = 0; from < 3; ++from) {
        for (int to = 0; to < 3; ++to) {
          if (from == to) continue;
          std::vector<std::int32_t> data = numbers(size, from);
          if (group.rank() == from) group.send(buffer(data), to, 7).wait();
          if (group.rank() != to) continue;
          std::vector<std::int32_t> got(size, -1);
          const Work work = group.recv(buffer(got), from, 7);
          work.wait();
          ASSERT_EQ(got, data);
          ASSERT_EQ(work.source(), from);
        }
      }
    }
  });
}

TEST(PointToPoint, TagsMatchInAnyOrder) {
  run_ranks(2, [](Context& context) {
    Group& group = *context.world();
    constexpr int kMessages = 20;
    if (group.rank() == 0) {
      std::vector<std::vector<std::int32_t>> data;
      std::vector<Work> works;
      for (int tag = 0; tag < kMessages; ++tag) {
        data.push_back(numbers(tag % 2 ? 10 : 100'000, tag));
      }
      for (int tag = 0; tag < kMessages; ++tag) {
        works.push_back(group.send(buffer(data[static_cast<std::size_t>(tag)]), 1,
                                   static_cast<std::uint32_t>(tag)));
      }
      for (const Work& work : works) work.wait();
    } else {
      for (int tag = kMessages - 1; tag >= 0; --tag) {
        std::vector<std::int32_t> got(tag % 2 ? 10 : 100'000, -1);
        group.recv(buffer(got), 0, static_cast<std::uint32_t>(tag)).wait();
        ASSERT_EQ(got, numbers(got.size(), tag));
      }
    }
  });
}

TEST(PointToPoint, MessagesOfOneTagKeepTheirOrder) {
  run_ranks(2, [](Context& context) {
    Group& group = *context.world();
    for (int i = 0; i < 200; ++i) {
      std::vector<std::int32_t> data = numbers(i % 3 == 0 ? 20'000 : 3, i);
      if (group.rank() == 0) {
        group.send(buffer(data), 1, 5).wait();
      } else {
        std::vector<std::int32_t> got(data.size(), -1);
        group.recv(buffer(got), 0, 5).wait();
        ASSERT_EQ(got, data);
      }
    }
  });
}

/// Fault 10 of the earlier system: both ranks post their receive first, then send.
TEST(PointToPoint, ReceiveThenSendOnBothRanks) {
  for (const std::size_t size : {std::size_t{1}, std::size_t{2'000'000}}) {
    run_ranks(2, [size](Context& context) {
      Group& group = *context.world();
      const int peer = 1 - group.rank();
      std::vector<std::int32_t> got(size, -1);
      std::vector<std::int32_t> data = numbers(size, group.rank());
      const Work receive = group.recv(buffer(got), peer, 0);
      const Work send = group.send(buffer(data), peer, 0);
      receive.wait();
      send.wait();
      ASSERT_EQ(got, numbers(size, peer));
    });
  }
}

TEST(PointToPoint, AnySourceTellsWhoSent) {
  run_ranks(4, [](Context& context) {
    Group& group = *context.world();
    if (group.rank() != 0) {
      std::vector<std::int32_t> data = numbers(50'000, group.rank());
      group.send(buffer(data), 0, 9).wait();
      return;
    }
    std::vector<bool> seen(4, false);
    for (int i = 0; i < 3; ++i) {
      std::vector<std::int32_t> got(50'000, -1);
      const Work work = group.recv(buffer(got), kAnySource, 9);
      work.wait();
      ASSERT_EQ(got, numbers(got.size(), work.source()));
      seen[static_cast<std::size_t>(work.source())] = true;
    }
    ASSERT_EQ(seen, (std::vector<bool>{false, true, true, true}));
  });
}

/// Fault 9 of the earlier system: messages that not every rank joins leave the collectives alone.
TEST(PointToPoint, DoesNotDisturbCollectives) {
  run_ranks(3, [](Context& context) {
    Group& group = *context.world();
    std::vector<std::int32_t> message = numbers(100'000, 1);
    std::vector<std::int32_t> got(message.size(), -1);
    Work pending;
    if (group.rank() == 0) pending = group.send(buffer(message), 1, 3);
    for (int i = 0; i < 10; ++i) {
      std::vector<std::int32_t> data(10'000, 1);
      group.all_reduce(buffer(data), buffer(data), ReduceKind::sum).wait();
      ASSERT_EQ(data, std::vector<std::int32_t>(10'000, 3));
    }
    if (group.rank() == 1) {
      group.recv(buffer(got), 0, 3).wait();
      ASSERT_EQ(got, message);
    }
    pending.wait();
  });
}

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
      group.recv(buffer(last), 0, 2).wait();  // overtakes all the others
      ASSERT_EQ(last, numbers(3, 5));
      for (std::size_t i = 0; i < kMessages; ++i) {
        std::vector<std::int32_t> got(8192, -1);
        group.recv(buffer(got), 0, 1).wait();
        ASSERT_EQ(got, data);
      }
    }
  });
}

/// Fault 15 of the earlier system: after a timeout the memory of a receive is never written.
TEST(PointToPoint, ATimedOutReceiveIsForgotten) {
  run_ranks(2, [](Context& context) {
    Group& group = *context.world();
    std::vector<std::int32_t> late(10, -1);
    if (group.rank() == 1) {
      const Work work = group.recv(buffer(late), 0, 4, {.timeout = std::chrono::milliseconds(50)});
      EXPECT_THROW(work.wait(), TimeoutError);
    }
    group.barrier().wait();
    std::vector<std::int32_t> data = numbers(10, 1);
    if (group.rank() == 0) {
      group.send(buffer(data), 1, 4).wait();
    } else {
      std::vector<std::int32_t> got(10, -1);
      group.recv(buffer(got), 0, 4).wait();
      EXPECT_EQ(got, data);
      EXPECT_EQ(late, std::vector<std::int32_t>(10, -1));
    }
  });
}

/// The second of two receives that were started together fails the group; the first has its bytes.
TEST(PointToPoint, AReceiveThatHasItsBytesIsDoneThoughTheNextFails) {
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
