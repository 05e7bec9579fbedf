#include "base/machine.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>

namespace mccl {
namespace {

TEST(Machine, ReportsThePageSizeOfTheSystem) {
  EXPECT_EQ(page_bytes(), static_cast<std::size_t>(::getpagesize()));
  EXPECT_TRUE(std::has_single_bit(page_bytes()));
}

TEST(Machine, TheCacheLineDividesAPage) {
  EXPECT_TRUE(std::has_single_bit(line_bytes()));
  EXPECT_LE(line_bytes(), kLongestLine);
  EXPECT_GE(line_bytes(), 64U);
  EXPECT_EQ(page_bytes() % line_bytes(), 0U);
#ifdef __x86_64__
  EXPECT_EQ(line_bytes(), 64U);
#endif
}

}  // namespace
}  // namespace mccl
