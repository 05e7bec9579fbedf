// Tests whole calls whose arithmetic runs on the device that the settings name, and not in the
// host's kernels.
#include "backend/native/units.h"

#include <gmock/gmock.h>

#include <cstring>
#include <vector>

#include "kernels/metal/reduce_on_host.h"
#include "mccl/error.h"
#include "support/metal_double.h"
#include "support/ranks.h"

namespace mccl {
namespace {

using ::testing::HasSubstr;
using testing::MetalDouble;
using testing::run_failing_ranks;
using testing::run_ranks;
using testing::test_config;

Config on_the_gpu(int /*rank*/) {
  Config config = test_config();
  config.reduce_on = "gpu";
  config.gpu_threshold = 64;
  config.algorithm = "ring";
  return config;
}

std::vector<std::uint16_t> numbers(int rank, std::size_t count) {
  std::vector<std::uint16_t> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<std::uint16_t>(0x3f80 + (i * 7 + static_cast<std::size_t>(rank)) % 64);
  return values;
}

std::vector<std::uint16_t> sum_of(int ranks, std::size_t count,
                                  const std::function<Config(int)>& config_of) {
  std::vector<std::uint16_t> result;
  run_ranks(
      ranks,
      [&](Context& context) {
        std::vector<std::uint16_t> data = numbers(context.rank(), count);
        const Buffer all{data.data(), count, DType::bf16};
        context.world()->all_reduce(all, all, ReduceKind::sum).wait();
        if (context.rank() == 0) result = data;
      },
      config_of);
  return result;
}

TEST(Units, TheGpuGivesTheBitsOfTheHost) {
  const auto gpu = std::make_shared<MetalDouble>();
  gpu->run_kernel = testing::run_on_host;
  device::metal::replace_driver(gpu);
  const auto found = sum_of(3, 10'000, on_the_gpu);
  EXPECT_GT(gpu->kernels_run, 0);
  EXPECT_THAT(gpu->violations(), ::testing::IsEmpty());
  device::metal::replace_driver(nullptr);
  EXPECT_EQ(found, sum_of(3, 10'000, [](int rank) {
              Config config = on_the_gpu(rank);
              config.reduce_on = "auto";
              return config;
            }));
}

TEST(Units, ThereAreNoneByDefault) {
  EXPECT_EQ(native::units_of(Config{}), nullptr);
  Config config;
  config.reduce_on = "cpu";
  EXPECT_EQ(native::units_of(config), nullptr);
}

TEST(Units, RefusesMissingShadersEvenIfUnused) {
  Config config;
  config.shader_path = "/no/such/shaders.metallib";
  try {
    native::units_of(config);
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("MCCL_SHADER_PATH: cannot read the file of Metal shaders"));
    EXPECT_THAT(error.what(), HasSubstr("\"/no/such/shaders.metallib\": No such file"));
  }
  config.shader_path = __FILE__;
  EXPECT_EQ(native::units_of(config), nullptr);
}

TEST(Units, RefusesAUnitThatThisMachineLacks) {
  for (const auto& [name, value, what] :
       {std::tuple{"reduce_on", "gpu", "no Metal"},
        {"accelerate", "true", "Accelerate is available only on macOS"}}) {
    Config config;
    config.set(name, value);
    try {
      native::units_of(config);
      FAIL() << name;
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr(what));
    }
  }
}

TEST(Units, RanksThatDisagreeRefuseEachOther) {
  const auto gpu = std::make_shared<MetalDouble>();
  gpu->run_kernel = testing::run_on_host;
  device::metal::replace_driver(gpu);
  const auto said = run_failing_ranks(
      2, [](Context&) {},
      [](int rank) {
        Config config = on_the_gpu(rank);
        config.connect_timeout = 5;
        if (rank == 1) config.reduce_on = "cpu";
        return config;
      });
  EXPECT_THAT(said, ::testing::Contains(HasSubstr("reduce_on")));
  device::metal::replace_driver(nullptr);
}

}  // namespace
}  // namespace mccl
