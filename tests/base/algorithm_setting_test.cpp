#include <gtest/gtest.h>

#include <string>

#include "mccl/config.h"
#include "schedule/schedule.h"

namespace mccl {
namespace {

// The setting table must not include the schedule layer, so this test compares the names.
TEST(AlgorithmSetting, AcceptsEveryAlgorithm) {
  Config config;
  for (int i = 0; i < schedule::kAlgorithmCount; ++i) {
    const std::string name{schedule::name_of(static_cast<schedule::Algorithm>(i))};
    EXPECT_NO_THROW(config.set("algorithm", name)) << name;
    EXPECT_EQ(config.algorithm, name);
  }
}

}  // namespace
}  // namespace mccl
