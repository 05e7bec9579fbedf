// Tests contexts that meet the replacements of ranks that have left.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "mccl/context.h"
#include "mccl/error.h"
#include "mccl/meeting.h"
#include "support/ranks.h"

namespace mccl {
namespace {

using testing::test_config;

/// Returns the sum of a one of each rank.
int count_ranks(Context& context) {
  int value = 1;
  const Buffer buffer{&value, 1, DType::i32};
  context.world()->all_reduce(buffer, buffer, ReduceKind::sum).wait();
  return value;
}

void call_until_failure(Context& context) {
  try {
    for (;;) count_ranks(context);
  } catch (const PeerError&) {
  }
}

class Reconfigure : public ::testing::TestWithParam<int> {};

TEST_P(Reconfigure, MeetsTheReplacementOfARank) {
  constexpr int kSize = 3;
  const int leaver = GetParam();
  const auto store = make_memory_store();
  std::vector<int> counted(kSize);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kSize; ++rank) {
    ranks.emplace_back([&, rank] {
      const ContextOptions options{rank, kSize, store, test_config(), nullptr};
      std::shared_ptr<Context> context = Context::create(options);
      EXPECT_EQ(count_ranks(*context), kSize);
      if (rank == leaver) {
        context.reset();
        context = Context::create(options);
      } else {
        call_until_failure(*context);
        const std::shared_ptr<Context> old = context;
        context = old->reconfigure(std::chrono::seconds(30));
        EXPECT_THROW(count_ranks(*old), Error);
        EXPECT_THROW(old->reconfigure(), InvalidArgument);
        EXPECT_EQ(context->config().connect_timeout, 30);
      }
      counted[static_cast<std::size_t>(rank)] = count_ranks(*context);
      context->world()->barrier().wait();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(counted, std::vector<int>(kSize, kSize));
}

INSTANTIATE_TEST_SUITE_P(Ranks, Reconfigure, ::testing::Values(0, 1, 2));

TEST(Reconfigure, ALivingJobMayMeetAgain) {
  const auto store = make_memory_store();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      std::shared_ptr<Context> context = Context::create({rank, 2, store, test_config(), nullptr});
      for (int i = 0; i < 3; ++i) {
        context = context->reconfigure();
        EXPECT_EQ(count_ranks(*context), 2);
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

}  // namespace
}  // namespace mccl
