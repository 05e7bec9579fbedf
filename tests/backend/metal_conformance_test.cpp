// Runs the conformance suite of groups on memory of a Mac's GPU, shared or private: on all ranks,
// or on every second rank.
#include "backend/conformance/checks.h"
#include "support/on_metal.h"
#include "support/ranks.h"

namespace mccl {
namespace {

using conformance::Check;
using testing::CarrierToMetal;
using testing::MetalDouble;
using testing::OnDeviceContext;
using testing::run_ranks;
using testing::test_config;

struct Job {
  const char* name;
  int size;
  bool shared;
  bool mixed;
};

class MetalConformance : public ::testing::TestWithParam<std::tuple<Job, Check>> {
 protected:
  void SetUp() override { device::metal::replace_driver(gpu_); }
  void TearDown() override { device::metal::replace_driver(nullptr); }

  const std::shared_ptr<MetalDouble> gpu_ = std::make_shared<MetalDouble>();
};

TEST_P(MetalConformance, Holds) {
  const auto& [job, check] = GetParam();
  run_ranks(
      job.size,
      [this, &job = job, &check = check](Context& context) {
        if (context.size() < check.least) return;
        if (job.mixed && context.rank() % 2 == 1) return check.run(context);
        OnDeviceContext on_metal(
            [this, &job] { return std::make_unique<CarrierToMetal>(gpu_, job.shared); }, context);
        check.run(on_metal);
      },
      [](int) {
        Config config = test_config();
        config.chunk_bytes = 64 << 10;
        return config;
      });
  EXPECT_THAT(gpu_->violations(), ::testing::IsEmpty());
  if (job.shared) {
    EXPECT_EQ(gpu_->copies(), 0U);
  }
}

std::string name_on_metal(const ::testing::TestParamInfo<std::tuple<Job, Check>>& info) {
  const auto& [job, check] = info.param;
  return std::string(check.name) + "_" + job.name + "_" + std::to_string(job.size);
}

const Job kJobs[] = {
    {"shared", 3, true, false}, {"private", 3, false, false}, {"mixed", 3, true, true}};
const Job kPairs[] = {{"shared", 2, true, false}, {"private", 2, false, false}};

INSTANTIATE_TEST_SUITE_P(Collectives, MetalConformance,
                         ::testing::Combine(::testing::ValuesIn(kJobs),
                                            ::testing::ValuesIn(conformance::collective_checks())),
                         name_on_metal);
INSTANTIATE_TEST_SUITE_P(Reductions, MetalConformance,
                         ::testing::Combine(::testing::ValuesIn(kPairs),
                                            ::testing::ValuesIn(conformance::reduction_checks())),
                         name_on_metal);
INSTANTIATE_TEST_SUITE_P(Messages, MetalConformance,
                         ::testing::Combine(::testing::ValuesIn(kPairs),
                                            ::testing::ValuesIn(conformance::message_checks())),
                         name_on_metal);
INSTANTIATE_TEST_SUITE_P(Groups, MetalConformance,
                         ::testing::Combine(::testing::ValuesIn(kPairs),
                                            ::testing::ValuesIn(conformance::group_checks())),
                         name_on_metal);

}  // namespace
}  // namespace mccl
