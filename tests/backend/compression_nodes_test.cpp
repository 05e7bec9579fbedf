// Sums that are rounded between hosts, and exact inside each.
#ifdef __linux__

#include <cstring>
#include <random>

#include "../kernels/codec/reference.h"
#include "base/coding.h"
#include "support/hosts.h"
#include "support/processes.h"

namespace mccl {
namespace {

using testing::Hosts;
using testing::Processes;

constexpr std::size_t kCount = 70'003;

std::vector<float> given(int rank) {
  std::mt19937 random(static_cast<unsigned>(rank) * 977 + 5);
  std::normal_distribution<float> normal(0.1F);
  std::vector<float> values(kCount);
  for (float& x : values) x = normal(random);
  return values;
}

/// What each host gives: its ranks' values, added up in f32 and in the order of the ranks.
std::vector<std::vector<float>> given_by_hosts(const std::vector<int>& host_of) {
  std::vector<std::vector<float>> sums;
  for (std::size_t rank = 0; rank < host_of.size(); ++rank) {
    const auto host = static_cast<std::size_t>(host_of[rank]);
    const std::vector<float> values = given(static_cast<int>(rank));
    if (sums.size() <= host) sums.resize(host + 1);
    if (sums[host].empty()) {
      sums[host] = values;
      continue;
    }
    for (std::size_t i = 0; i < kCount; ++i) sums[host][i] += values[i];
  }
  return sums;
}

class CompressionAcrossHosts : public ::testing::TestWithParam<std::vector<int>> {};

TEST_P(CompressionAcrossHosts, RoundsTheSumsOfHosts) {
  const Hosts hosts;
  if (!hosts.ready()) GTEST_SKIP() << "`ip netns` cannot make hosts here (it needs root)";
  const std::vector<int>& host_of = GetParam();
  const auto sums = given_by_hosts(host_of);
  Processes job(
      static_cast<int>(host_of.size()),
      [&](Context& context, const Processes::Say&) {
        for (const char* name : {"fp16", "bf16", "int8", "fp8", "fp8_e5m2", "int4", "topk"}) {
          const Compression compression{codec_named(name), 0.01};
          const Coding coding = coding_of(compression, static_cast<int>(sums.size()));
          const auto expected = kernels::reference::sum_in(coding, sums, false);
          std::vector<float> data = given(context.rank());
          const Buffer buffer{data.data(), kCount, DType::f32};
          context.world()
              ->all_reduce(buffer, buffer, ReduceKind::sum, {.compression = compression})
              .wait();
          if (std::memcmp(data.data(), expected.data(), kCount * sizeof(float)) != 0)
            throw Error(std::string("not what is defined, in ") + name);
        }
        context.world()->barrier().wait();
      },
      {.store_address = "10.77.0.1:29400",
       .config_of =
           [](int) {
             Config config = testing::test_config();
             config.calibrate = false;
             config.chunk_bytes = 64 << 10;
             return config;
           },
       .enter = [&](int rank) { hosts.enter(host_of[static_cast<std::size_t>(rank)]); }});
  job.expect_good_end();
}

INSTANTIATE_TEST_SUITE_P(Hosts, CompressionAcrossHosts,
                         ::testing::Values(std::vector<int>{0, 1}, std::vector<int>{0, 1, 1},
                                           std::vector<int>{0, 0, 1, 1},
                                           std::vector<int>{0, 1, 0, 1},
                                           std::vector<int>{0, 0, 0, 0, 0, 1, 1, 1}));

/// All that rounding leaves out is kept by somebody, once; of an average over ranks, not machines.
TEST(CompressionAcrossHosts, KeepsWhatItLeavesOut) {
  const Hosts hosts;
  if (!hosts.ready()) GTEST_SKIP() << "`ip netns` cannot make hosts here (it needs root)";
  Processes job(4,
                [&](Context& context, const Processes::Say&) {
                  std::vector<float> mean = given(context.rank()), exact = mean, left(kCount, 7);
                  const Buffer in_mean{mean.data(), kCount, DType::f32};
                  const Buffer in_exact{exact.data(), kCount, DType::f32};
                  const Buffer in_left{left.data(), kCount, DType::f32};
                  Group& world = *context.world();
                  world
                      .all_reduce(in_mean, in_mean, ReduceKind::avg,
                                  {.compression = Compression{Codec::int4}, .left_out = in_left})
                      .wait();
                  world.all_reduce(in_exact, in_exact, ReduceKind::avg).wait();
                  world.all_reduce(in_left, in_left, ReduceKind::avg).wait();
                  for (std::size_t i = 0; i < kCount; ++i) {
                    if (std::abs(exact[i] - mean[i] - left[i]) > 1e-4F)
                      throw Error("something is lost");
                  }
                  world.barrier().wait();
                },
                {.store_address = "10.77.0.1:29400",
                 .config_of =
                     [](int) {
                       Config config = testing::test_config();
                       config.calibrate = false;
                       return config;
                     },
                 .enter = [&](int rank) { hosts.enter(rank / 2); }});
  job.expect_good_end();
}

}  // namespace
}  // namespace mccl

#endif  // __linux__
