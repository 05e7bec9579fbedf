#include "support/ranks.h"

namespace mccl {
namespace {

TEST(Smoke, AllReduceOfTwoRanks) {
  testing::run_ranks(2, [](Context& context) {
    for (int round = 0; round < 10; ++round) {
      for (std::size_t count : {1u, 2u, 1000u, 3000001u}) {
        std::vector<float> data(count, static_cast<float>(context.rank() + 1));
        const Buffer buffer{data.data(), data.size(), DType::f32};
        context.world()->all_reduce(buffer, buffer, ReduceKind::sum).wait();
        for (const float value : data) ASSERT_EQ(value, 3.0f);
      }
    }
  });
}

}  // namespace
}  // namespace mccl
