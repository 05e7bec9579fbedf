// Tests what a rank logs about its calls at MCCL_LOG_LEVEL=DEBUG.
#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

#include "support/ranks.h"

namespace mccl {
namespace {

using testing::run_ranks;
using testing::test_config;

TEST(DebugLines, NumberCallsInTheirOrder) {
  ::testing::internal::CaptureStderr();
  run_ranks(
      2,
      [](Context& context) {
        // Makes blocking calls of several sizes. Small ones run on the caller's thread.
        for (const std::size_t count : {1, 2, 3, 100'000, 4}) {
          std::vector<float> values(count);
          const Buffer data{values.data(), count, DType::f32};
          context.world()->all_reduce(data, data, ReduceKind::sum, {.caller_waits = true}).wait();
        }
      },
      [](int) {
        Config config = test_config();
        config.log_level = "DEBUG";
        return config;
      });
  const std::string text = ::testing::internal::GetCapturedStderr();
  const std::regex line(
      R"(rank 0\].* all_reduce #(\d+) \(sum of (\d+) f32\) of group .* uses algorithm )");
  std::vector<std::string> found;
  for (std::sregex_iterator at(text.begin(), text.end(), line), end; at != end; ++at) {
    found.push_back((*at)[1].str() + ": " + (*at)[2].str());
  }
  EXPECT_EQ(found, (std::vector<std::string>{"1: 1", "2: 2", "3: 3", "4: 100000", "5: 4"})) << text;
}

}  // namespace
}  // namespace mccl
