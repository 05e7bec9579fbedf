#include <gtest/gtest.h>

#include "engine/driving/driver.h"
#include "transport/link.h"

namespace mccl::engine {
namespace {

constexpr int kDescriptor = 17;

/// A link that never carries data, and whose system may lack memory for sends.
class ShortLink final : public transport::Link {
 public:
  std::size_t write(std::span<const std::byte>, std::span<const std::byte>) override { return 0; }
  std::span<const std::byte> peek(std::size_t) override { return {}; }
  void consume(std::size_t) override {}
  std::size_t peek_capacity() const override { return 0; }
  std::size_t read(std::span<std::byte>) override { return 0; }
  int descriptor() const override { return kDescriptor; }
  Clock::time_point retry_at() const override { return retry; }
  std::size_t unsent() const override { return 0; }
  void lose_peer(transport::Loss) override {}
  std::string description() const override { return "nothing"; }

  Clock::time_point retry = Clock::time_point::max();
};

TEST(Sleep, EndsWhenALinkCanBeReadOrWritten) {
  const ShortLink link;
  Sleep sleep;
  sleep.watch(link, POLLIN | POLLOUT);
  ASSERT_EQ(sleep.watched.size(), 1u);
  EXPECT_EQ(sleep.watched[0].fd, kDescriptor);
  EXPECT_EQ(sleep.watched[0].events, POLLIN | POLLOUT);
  EXPECT_EQ(sleep.timeout_ms(), -1);
}

TEST(Sleep, IgnoresAWritableSocketWhileTheSystemLacksMemory) {
  ShortLink link;
  link.retry = Clock::now() + std::chrono::milliseconds(5);
  Sleep sleep;
  sleep.watch(link, POLLIN | POLLOUT);
  ASSERT_EQ(sleep.watched.size(), 1u);
  EXPECT_EQ(sleep.watched[0].events, POLLIN);
  EXPECT_EQ(sleep.until, link.retry);

  Sleep only_to_write;
  only_to_write.watch(link, POLLOUT);
  EXPECT_TRUE(only_to_write.watched.empty());
  EXPECT_EQ(only_to_write.until, link.retry);
}

TEST(Sleep, AReaderDoesNotWakeForWriting) {
  ShortLink link;
  link.retry = Clock::now();
  Sleep sleep;
  sleep.watch(link, POLLIN);
  EXPECT_EQ(sleep.until, Clock::time_point::max());
}

TEST(Sleep, EndsAtOnceIfItsTimeHasPassed) {
  Sleep sleep;
  sleep.until = Clock::time_point::min();
  EXPECT_EQ(sleep.timeout_ms(), 0);
}

}  // namespace
}  // namespace mccl::engine
