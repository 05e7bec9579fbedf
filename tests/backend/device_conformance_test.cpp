// Runs the conformance suite of groups on device memory: on all ranks, or on every second rank.
#include <string_view>

#include "backend/conformance/checks.h"
#include "device/registry.h"
#include "support/on_device.h"
#include "support/ranks.h"

namespace mccl {
namespace {

using conformance::Check;
using testing::DeviceDouble;
using testing::OnDeviceContext;
using testing::run_ranks;
using testing::test_config;

struct Job {
  const char* name;
  int size;
  bool mixed;
};

class DeviceConformance : public ::testing::TestWithParam<std::tuple<Job, Check>> {
 protected:
  void SetUp() override {
    device::replace_maker(DeviceKind::cuda, [this](int) { return device_; });
  }
  void TearDown() override { device::replace_maker(DeviceKind::cuda, nullptr); }

  const std::shared_ptr<DeviceDouble> device_ = std::make_shared<DeviceDouble>();
};

TEST_P(DeviceConformance, Holds) {
  const auto& [job, check] = GetParam();
  run_ranks(
      job.size,
      [this, &job = job, &check = check](Context& context) {
        if (context.size() < check.least) return;
        if (job.mixed && context.rank() % 2 == 1) return check.run(context);
        OnDeviceContext on_device(device_, context);
        check.run(on_device);
      },
      [&check = check](int) {
        Config config = test_config();
        config.chunk_bytes = 64 << 10;
        // With "auto" the ranks also make a call to agree on the path, which would be counted.
        if (std::string_view(check.name) == "MetricsCountCalls") config.backend = "native";
        return config;
      });
}

std::string name_on_devices(const ::testing::TestParamInfo<std::tuple<Job, Check>>& info) {
  const auto& [job, check] = info.param;
  return std::string(check.name) + "_" + job.name + "_" + std::to_string(job.size);
}

const Job kJobs[] = {{"alone", 1, false}, {"devices", 3, false}, {"mixed", 3, true}};
const Job kPairs[] = {{"devices", 2, false}, {"mixed", 3, true}};

INSTANTIATE_TEST_SUITE_P(Collectives, DeviceConformance,
                         ::testing::Combine(::testing::ValuesIn(kJobs),
                                            ::testing::ValuesIn(conformance::collective_checks())),
                         name_on_devices);
INSTANTIATE_TEST_SUITE_P(Reductions, DeviceConformance,
                         ::testing::Combine(::testing::ValuesIn(kPairs),
                                            ::testing::ValuesIn(conformance::reduction_checks())),
                         name_on_devices);
INSTANTIATE_TEST_SUITE_P(Messages, DeviceConformance,
                         ::testing::Combine(::testing::ValuesIn(kPairs),
                                            ::testing::ValuesIn(conformance::message_checks())),
                         name_on_devices);
INSTANTIATE_TEST_SUITE_P(Groups, DeviceConformance,
                         ::testing::Combine(::testing::ValuesIn(kPairs),
                                            ::testing::ValuesIn(conformance::group_checks())),
                         name_on_devices);

}  // namespace
}  // namespace mccl
