#include "transport/tcp/shortage.h"

#include <gtest/gtest.h>

namespace mccl::transport::tcp {
namespace {

using std::chrono::milliseconds;

TEST(Shortage, PausesLongerEachTimeUntilAWriteGoesThrough) {
  const Clock::time_point now = Clock::now();
  Shortage shortage;
  EXPECT_FALSE(shortage.lasts());
  EXPECT_EQ(shortage.retry_at(), Clock::time_point::max());
  EXPECT_TRUE(shortage.refused(now));
  EXPECT_TRUE(shortage.lasts());
  EXPECT_EQ(shortage.retry_at(), now + milliseconds(1));
  for (const int pause : {2, 4, 8, 16, 16}) {
    EXPECT_FALSE(shortage.refused(now));
    EXPECT_EQ(shortage.retry_at(), now + milliseconds(pause));
  }
  shortage.over();
  EXPECT_FALSE(shortage.lasts());
  EXPECT_EQ(shortage.retry_at(), Clock::time_point::max());
  EXPECT_TRUE(shortage.refused(now));
  EXPECT_EQ(shortage.retry_at(), now + milliseconds(1));
}

}  // namespace
}  // namespace mccl::transport::tcp
