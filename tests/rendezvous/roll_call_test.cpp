#include "rendezvous/roll_call.h"

#include <gtest/gtest.h>

namespace mccl::rendezvous {
namespace {

TEST(RollCall, NamesWhoHasNotComeAndWhoHas) {
  EXPECT_EQ(roll_call({true, false, true, false}), "ranks 1 and 3 have not arrived; 0 and 2 have");
  EXPECT_EQ(roll_call({true, false}), "rank 1 has not arrived; 0 has");
  EXPECT_EQ(roll_call({false, false, true}), "ranks 0 and 1 have not arrived; 2 has");
  EXPECT_EQ(roll_call({false, false}), "ranks 0 and 1 have not arrived");
  EXPECT_EQ(roll_call({false, true}, "connected"), "rank 0 has not connected; 1 has");
}

TEST(RollCall, OfALongRunTheEndsAreNamed) {
  std::vector<bool> present(1000, true);
  for (const int absent : {3, 7, 8, 20, 21, 22, 999}) present[absent] = false;
  EXPECT_EQ(roll_call(present),
            "ranks 3, 7, 8, 20 to 22 and 999 have not arrived; 0 to 2, 4 to 6, 9 to 19 and 23 to "
            "998 have");
}

}  // namespace
}  // namespace mccl::rendezvous
