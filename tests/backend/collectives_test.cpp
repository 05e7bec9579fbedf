// Runs the conformance suite of groups on the native backend, for several sizes and for each
// algorithm.
#include "backend/conformance/checks.h"
#include "support/ranks.h"

namespace mccl {
namespace {

using conformance::Check;
using testing::run_ranks;
using testing::test_config;

struct Case {
  int size;
  const char* algorithm;
};

class Conformance : public ::testing::TestWithParam<std::tuple<Case, Check>> {};

TEST_P(Conformance, Holds) {
  const auto& [job, check] = GetParam();
  run_ranks(
      job.size,
      [&check](Context& context) {
        if (context.size() >= check.least) check.run(context);
      },
      [&job](int) {
        Config config = test_config();
        config.algorithm = job.algorithm;
        config.chunk_bytes = 64 << 10;  // splits the larger counts into several chunks
        return config;
      });
}

std::string name(const ::testing::TestParamInfo<std::tuple<Case, Check>>& info) {
  const auto& [job, check] = info.param;
  return std::string(check.name) + "_" + job.algorithm + "_" + std::to_string(job.size);
}

const Case kSizes[] = {{1, "auto"}, {2, "auto"}, {3, "auto"},
                       {4, "auto"}, {5, "auto"}, {8, "auto"}};
const Case kAlgorithms[] = {
    {3, "direct"},        {4, "ring"},  {5, "ring_both"}, {5, "recursive_doubling"},
    {6, "binomial_tree"}, {4, "chain"}, {5, "pairwise"}};

INSTANTIATE_TEST_SUITE_P(Collectives, Conformance,
                         ::testing::Combine(::testing::ValuesIn(kSizes),
                                            ::testing::ValuesIn(conformance::collective_checks())),
                         name);
INSTANTIATE_TEST_SUITE_P(Algorithms, Conformance,
                         ::testing::Combine(::testing::ValuesIn(kAlgorithms),
                                            ::testing::ValuesIn(conformance::collective_checks())),
                         name);
INSTANTIATE_TEST_SUITE_P(Reductions, Conformance,
                         ::testing::Combine(::testing::Values(Case{1, "auto"}, Case{3, "auto"}),
                                            ::testing::ValuesIn(conformance::reduction_checks())),
                         name);
INSTANTIATE_TEST_SUITE_P(Messages, Conformance,
                         ::testing::Combine(::testing::Values(Case{3, "auto"}),
                                            ::testing::ValuesIn(conformance::message_checks())),
                         name);
INSTANTIATE_TEST_SUITE_P(Groups, Conformance,
                         ::testing::Combine(::testing::Values(Case{2, "auto"}, Case{5, "auto"}),
                                            ::testing::ValuesIn(conformance::group_checks())),
                         name);

}  // namespace
}  // namespace mccl
