// Tests sums that are compressed between hosts and exact within each host.
#ifdef __linux__

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>
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

/// Returns the contribution of each host: the f32 sum of its ranks' values in rank order.
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

void expect_same_bits(const std::vector<float>& found, const std::vector<float>& expected,
                      const char* name) {
  const auto bits = [](float value) { return std::bit_cast<std::uint32_t>(value); };
  if (!std::ranges::equal(found, expected, {}, bits, bits))
    throw Error(std::string("not what is defined, in ") + name);
}

/// Runs a job on two hosts, whose ranks each call check(context, compression, coding) for every
/// codec.
template <typename Check>
void check_codecs(const std::vector<int>& host_of, const Check& check) {
  const Hosts hosts;
  if (!hosts.ready()) GTEST_SKIP() << "`ip netns` cannot make hosts here (it needs root)";
  Processes job(
      static_cast<int>(host_of.size()),
      [&](Context& context, const Processes::Say&) {
        for (const char* name : {"fp16", "bf16", "int8", "fp8", "fp8_e5m2", "int4", "topk"}) {
          const Compression compression{codec_named(name), 0.01};
          check(context, compression, coding_of(compression, 2));
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

class CompressionAcrossHosts : public ::testing::TestWithParam<std::vector<int>> {};

TEST_P(CompressionAcrossHosts, RoundsTheSumsOfHosts) {
  const auto sums = given_by_hosts(GetParam());
  check_codecs(GetParam(), [&](Context& context, const Compression& compression,
                               const Coding& coding) {
    for (const bool average : {false, true}) {
      std::vector<float> data = given(context.rank());
      const Buffer buffer{data.data(), kCount, DType::f32};
      context.world()
          ->all_reduce(buffer, buffer, average ? ReduceKind::avg : ReduceKind::sum,
                       {.compression = compression})
          .wait();
      expect_same_bits(data, kernels::reference::sum_in(coding, sums, average ? context.size() : 1),
                       name_of(compression.codec).data());
    }
  });
}

TEST_P(CompressionAcrossHosts, ScattersTheRoundedSumsOfHosts) {
  const auto size = static_cast<std::ptrdiff_t>(GetParam().size());
  std::vector<std::size_t> counts(GetParam().size(), kCount / GetParam().size());
  counts.front() = 0;  // the last rank gets the remainder
  counts.back() += kCount - static_cast<std::size_t>(size - 1) * counts.back();
  const auto sums = given_by_hosts(GetParam());
  check_codecs(
      GetParam(), [&](Context& context, const Compression& compression, const Coding& coding) {
        const auto rank = static_cast<std::size_t>(context.rank());
        const auto begin =
            std::accumulate(counts.begin(), counts.begin() + context.rank(), std::ptrdiff_t{0});
        const auto end = begin + static_cast<std::ptrdiff_t>(counts[rank]);
        std::vector<std::vector<float>> parts;
        for (const std::vector<float>& sum : sums)
          parts.emplace_back(sum.begin() + begin, sum.begin() + end);
        for (const bool average : {false, true}) {
          std::vector<float> data = given(context.rank()), out(counts[rank]);
          const ReduceKind kind = average ? ReduceKind::avg : ReduceKind::sum;
          const Buffer in{data.data(), kCount, DType::f32};
          const CallOptions options{.compression = compression};
          const auto expected =
              kernels::reference::part_in(coding, parts, average ? context.size() : 1);
          context.world()
              ->reduce_scatterv(in, {out.data(), out.size(), DType::f32}, counts, kind, options)
              .wait();
          expect_same_bits(out, expected, name_of(compression.codec).data());
          context.world()
              ->reduce_scatterv(in, {data.data() + begin, counts[rank], DType::f32}, counts, kind,
                                options)
              .wait();
          expect_same_bits({data.begin() + begin, data.begin() + end}, expected, "place");
        }
      });
}

INSTANTIATE_TEST_SUITE_P(Hosts, CompressionAcrossHosts,
                         ::testing::Values(std::vector<int>{0, 1}, std::vector<int>{0, 1, 1},
                                           std::vector<int>{0, 0, 1, 1},
                                           std::vector<int>{0, 1, 0, 1},
                                           std::vector<int>{0, 0, 0, 0, 1, 1, 1, 1},
                                           std::vector<int>{0, 0, 0, 0, 0, 1, 1, 1}));

/// The result and the residuals of all ranks add up to the exact average over ranks, not over
/// hosts.
TEST(CompressionAcrossHosts, ReturnsItsRoundingError) {
  check_codecs({0, 0, 1, 1}, [&](Context& context, const Compression& compression, const Coding&) {
    std::vector<float> mean = given(context.rank()), exact = mean, left(kCount, 7);
    const Buffer in_mean{mean.data(), kCount, DType::f32};
    const Buffer in_exact{exact.data(), kCount, DType::f32};
    const Buffer in_left{left.data(), kCount, DType::f32};
    Group& world = *context.world();
    world
        .all_reduce(in_mean, in_mean, ReduceKind::avg,
                    {.compression = compression, .left_out = in_left})
        .wait();
    world.all_reduce(in_exact, in_exact, ReduceKind::avg).wait();
    world.all_reduce(in_left, in_left, ReduceKind::avg).wait();
    for (std::size_t i = 0; i < kCount; ++i) {
      if (std::abs(exact[i] - mean[i] - left[i]) > 1e-4F) throw Error("something is lost");
    }
  });
}

TEST(CompressionAcrossHosts, AReduceScatterReturnsItsRoundingError) {
  constexpr std::size_t kPart = kCount / 5;
  check_codecs(
      {0, 0, 0, 1, 1}, [&](Context& context, const Compression& compression, const Coding&) {
        std::vector<float> all = given(context.rank()), left(kCount, 7);
        std::vector<float> sum(kPart), exact(kPart), kept(kPart);
        const auto whole = [](std::vector<float>& values, std::size_t count) {
          return Buffer{values.data(), count, DType::f32};
        };
        Group& world = *context.world();
        world
            .reduce_scatter(whole(all, 5 * kPart), whole(sum, kPart), ReduceKind::sum,
                            {.compression = compression, .left_out = whole(left, 5 * kPart)})
            .wait();
        world.reduce_scatter(whole(all, 5 * kPart), whole(exact, kPart), ReduceKind::sum).wait();
        world.reduce_scatter(whole(left, 5 * kPart), whole(kept, kPart), ReduceKind::sum).wait();
        for (std::size_t i = 0; i < kPart; ++i) {
          if (std::abs(exact[i] - sum[i] - kept[i]) > 1e-4F) throw Error("something is lost");
        }
      });
}

}  // namespace
}  // namespace mccl

#endif  // __linux__
