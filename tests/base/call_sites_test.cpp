// Tests the table of the places from which a program makes calls.
#include "base/call_sites.h"

#include <gtest/gtest.h>

#include <string>

namespace mccl {
namespace {

TEST(CallSites, KeepsATextOnce) {
  const CallSite* const first = call_site("train.py:42");
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->text, "train.py:42");
  EXPECT_EQ(text_of_call_site(first->number), "train.py:42");
  EXPECT_EQ(call_site(std::string("train.py:4") + "2"), first);
  EXPECT_NE(call_site("train.py:43"), first);  // null if another test has filled the table
}

TEST(CallSites, AnUnknownNumberHasNoText) {
  EXPECT_EQ(text_of_call_site(0), "");
  EXPECT_EQ(text_of_call_site(0xffff), "");
}

TEST(CallSites, ATableThatIsFullKeepsWhatItHas) {
  const CallSite* const first = call_site("train.py:42");
  for (int line = 0; line < kMostCallSites; ++line) call_site("full.py:" + std::to_string(line));
  EXPECT_EQ(call_site("one more"), nullptr);
  EXPECT_EQ(call_site("train.py:42"), first);
}

}  // namespace
}  // namespace mccl
