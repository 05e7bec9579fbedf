#include "base/would_block.h"

#include <gtest/gtest.h>

namespace mccl {
namespace {

TEST(WouldBlock, DistinguishesRetriesFromErrors) {
  for (const int error : {EAGAIN, EWOULDBLOCK, EINTR, ENOBUFS}) EXPECT_TRUE(would_block(error));
  for (const int error : {0, EPIPE, ECONNRESET, EBADF, ENOMEM, ETIMEDOUT})
    EXPECT_FALSE(would_block(error)) << error;
}

}  // namespace
}  // namespace mccl
