// Tests jobs whose connections are encrypted.
#include <gmock/gmock.h>

#include "backend/conformance/checks.h"
#include "support/ranks.h"

namespace mccl {
namespace {

using conformance::Check;
using ::testing::HasSubstr;
using testing::run_failing_ranks;
using testing::run_ranks;
using testing::test_config;

Config encrypted() {
  Config config = test_config();
  config.transport = "tcp";
  config.encryption = "on";
  config.chunk_bytes = 64 << 10;
  return config;
}

class EncryptedConformance : public ::testing::TestWithParam<Check> {};

TEST_P(EncryptedConformance, Holds) {
  run_ranks(
      4, [](Context& context) { GetParam().run(context); }, [](int) { return encrypted(); });
}

std::string name_of_check(const ::testing::TestParamInfo<Check>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Collectives, EncryptedConformance,
                         ::testing::ValuesIn(conformance::collective_checks()), name_of_check);
INSTANTIATE_TEST_SUITE_P(Messages, EncryptedConformance,
                         ::testing::ValuesIn(conformance::message_checks()), name_of_check);
INSTANTIATE_TEST_SUITE_P(Groups, EncryptedConformance,
                         ::testing::ValuesIn(conformance::group_checks()), name_of_check);

TEST(Encryption, RanksThatDifferAllRefuse) {
  const auto errors = run_failing_ranks(
      2, [](Context&) { ADD_FAILURE() << "the ranks have met"; },
      [](int rank) {
        Config config = encrypted();
        if (rank == 1) config.encryption = "off";
        return config;
      });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("encryption (rank"));
    EXPECT_THAT(error, HasSubstr("give every rank the same value"));
  }
}

/// A large reduction keeps every socket full, so that links hold encrypted bytes.
TEST(Encryption, LargeBuffersPass) {
  run_ranks(
      3,
      [](Context& context) {
        std::vector<float> data(5'000'000, static_cast<float>(context.rank() + 1));
        const Buffer buffer{data.data(), data.size(), DType::f32};
        context.world()->all_reduce(buffer, buffer, ReduceKind::sum, {}).wait();
        EXPECT_EQ(data.front(), 6.0F);
        EXPECT_EQ(data.back(), 6.0F);
      },
      [](int) { return encrypted(); });
}

}  // namespace
}  // namespace mccl
