// Tests sums that are compressed on the wire.
#include <gmock/gmock.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <mutex>
#include <random>

#include "../kernels/codec/reference.h"
#include "base/coding.h"
#include "support/ranks.h"

namespace mccl {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

Config over_tcp(const std::string& codec, double ratio = 0.01) {
  Config config = testing::test_config();
  config.transport = "tcp";
  config.compression = codec;
  config.topk_ratio = ratio;
  config.calibrate = false;
  return config;
}

std::vector<float> given(int rank, std::size_t count) {
  std::mt19937 random(static_cast<unsigned>(rank) * 977 + 5);
  std::normal_distribution<float> normal(0.1F);
  std::vector<float> values(count);
  for (float& x : values) x = normal(random);
  return values;
}

std::vector<std::vector<float>> given_by_all(int size, std::size_t count) {
  std::vector<std::vector<float>> all;
  for (int rank = 0; rank < size; ++rank) all.push_back(given(rank, count));
  return all;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  const auto equal = [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
  };
  return std::ranges::equal(a, b, equal);
}

constexpr std::string_view kCodecs[] = {"fp16",     "bf16", "int8", "fp8_e4m3",
                                        "fp8_e5m2", "int4", "topk"};

/// The result equals the codec's definition on every rank, in place and out of place.
TEST(Compression, AnAllReduceIsTheSumThatTheCodecDefines) {
  constexpr std::size_t kCount = 50'003;
  for (const int size : {2, 3, 4, 8}) {
    for (const std::string_view name : kCodecs) {
      const Coding coding = coding_of({codec_named(name), 0.01}, size);
      const auto all = given_by_all(size, kCount);
      for (const bool average : {false, true}) {
        const auto expected = kernels::reference::sum_in(coding, all, average ? size : 1);
        const ReduceKind kind = average ? ReduceKind::avg : ReduceKind::sum;
        testing::run_ranks(
            size,
            [&](Context& context) {
              std::vector<float> data = all[static_cast<std::size_t>(context.rank())];
              std::vector<float> out(kCount);
              const Buffer place{data.data(), kCount, DType::f32};
              context.world()->all_reduce(place, {out.data(), kCount, DType::f32}, kind).wait();
              EXPECT_TRUE(same_bits(out, expected)) << name << " on " << size;
              context.world()->all_reduce(place, place, kind).wait();
              EXPECT_TRUE(same_bits(data, expected)) << name << " on " << size << ", in place";
            },
            [&](int) { return over_tcp(std::string(name)); });
      }
    }
  }
}

/// Returns each rank's contribution to one part.
std::vector<std::vector<float>> parts_of(const std::vector<std::vector<float>>& all,
                                         std::size_t begin, std::size_t count) {
  std::vector<std::vector<float>> parts;
  for (const std::vector<float>& whole : all) {
    const auto first = whole.begin() + static_cast<std::ptrdiff_t>(begin);
    parts.emplace_back(first, first + static_cast<std::ptrdiff_t>(count));
  }
  return parts;
}

TEST(Compression, AReduceScatterIsNotRoundedAgain) {
  for (const int size : {2, 3, 4, 8}) {
    std::vector<std::size_t> counts, begins;
    std::size_t total = 0;
    for (int rank = 0; rank < size; ++rank) {  // rank 1 has an empty part
      begins.push_back(total);
      counts.push_back(rank == 1 ? 0 : 20'001 + 3000 * static_cast<std::size_t>(rank));
      total += counts.back();
    }
    const auto all = given_by_all(size, total);
    for (const std::string_view name : kCodecs) {
      const Coding coding = coding_of({codec_named(name), 0.01}, size);
      testing::run_ranks(
          size,
          [&](Context& context) {
            const auto rank = static_cast<std::size_t>(context.rank());
            const auto given = parts_of(all, begins[rank], counts[rank]);
            for (const bool average : {false, true}) {
              std::vector<float> out(counts[rank]);
              context.world()
                  ->reduce_scatterv({all[rank].data(), total, DType::f32},
                                    {out.data(), out.size(), DType::f32}, counts,
                                    average ? ReduceKind::avg : ReduceKind::sum)
                  .wait();
              EXPECT_TRUE(
                  same_bits(out, kernels::reference::part_in(coding, given, average ? size : 1)))
                  << name << " on rank " << rank << " of " << size;
            }
          },
          [&](int) { return over_tcp(std::string(name)); });
    }
  }
}

/// Everything else stays exact: other operations and types, small sums, and calls that only move
/// data.
TEST(Compression, OnlySumsOfManyFloatsAreRounded) {
  testing::run_ranks(
      2,
      [](Context& context) {
        Group& world = *context.world();
        const auto check = [&](std::size_t count, ReduceKind kind, float expected) {
          std::vector<float> data(count, 1 + 0x1p-20F * static_cast<float>(context.rank() + 1));
          const Buffer buffer{data.data(), count, DType::f32};
          world.all_reduce(buffer, buffer, kind).wait();
          EXPECT_EQ(data.back(), expected) << count << " " << name_of(kind);
        };
        check(16'383, ReduceKind::sum, 2 + 3 * 0x1p-20F);
        check(100'000, ReduceKind::max, 1 + 2 * 0x1p-20F);
        std::vector<std::int32_t> whole(100'000, 1'000'003);
        const Buffer integers{whole.data(), whole.size(), DType::i32};
        world.all_reduce(integers, integers, ReduceKind::sum).wait();
        EXPECT_THAT(whole, Each(2'000'006));
        std::vector<float> moved(100'000, 1 + 0x1p-20F);
        if (world.rank() != 0) moved.assign(moved.size(), 0);
        world.broadcast({moved.data(), moved.size(), DType::f32}, 0).wait();
        EXPECT_THAT(moved, Each(1 + 0x1p-20F));
      },
      [](int) { return over_tcp("int8"); });
}

TEST(Compression, NothingIsRoundedInSharedMemory) {
  testing::run_ranks(
      2,
      [](Context& context) {
        std::vector<float> data(100'000, 1 + 0x1p-20F);
        const Buffer buffer{data.data(), data.size(), DType::f32};
        context.world()->all_reduce(buffer, buffer, ReduceKind::sum).wait();
        EXPECT_THAT(data, Each(2 + 0x1p-19F));
      },
      [](int) {
        Config config = over_tcp("int8");
        config.transport = "auto";
        return config;
      });
}

TEST(Compression, IsChosenByGroupAndByCall) {
  testing::run_ranks(
      2,
      [](Context& context) {
        const auto sum_of = [](Group& group, const CallOptions& options) {
          std::vector<float> data(100'000, 1 + 0x1p-20F);
          const Buffer buffer{data.data(), data.size(), DType::f32};
          group.all_reduce(buffer, buffer, ReduceKind::sum, options).wait();
          return data.back();
        };
        const auto timeout = std::chrono::seconds(60);
        const Compression bf16{Codec::bf16};
        const auto rounded = context.group("rounded", {0, 1}, timeout, bf16);
        const auto usual = context.group("usual", {0, 1}, timeout);
        EXPECT_EQ(sum_of(*usual, {}), 2 + 0x1p-19F);
        EXPECT_EQ(sum_of(*rounded, {}), 2.0F);
        EXPECT_EQ(sum_of(*rounded, {.compression = Compression{}}), 2 + 0x1p-19F);
        EXPECT_EQ(sum_of(*usual, {.compression = bf16}), 2.0F);
        EXPECT_EQ(sum_of(*rounded->split(0, 0), {}), 2.0F);
      },
      [](int) { return over_tcp("none"); });
}

/// The link rate comes from the settings. "auto" compresses to bf16.
TEST(Compression, AutoRoundsOnSlowLinks) {
  for (const double gbit : {1.0, 1000.0}) {
    testing::run_ranks(
        2,
        [gbit](Context& context) {
          const float value = 1 + 0x1p-20F;
          std::vector<float> many(1'000'000, value);
          std::vector<double> longer(100'000, value);
          const Buffer floats{many.data(), many.size(), DType::f32};
          const Buffer doubles{longer.data(), longer.size(), DType::f64};
          context.world()->all_reduce(floats, floats, ReduceKind::avg).wait();
          context.world()->all_reduce(doubles, doubles, ReduceKind::avg).wait();
          EXPECT_THAT(many, Each(gbit > 1 ? value : 1.0F)) << gbit << " Gbit/s";
          EXPECT_THAT(longer, Each(value));
        },
        [gbit](int) {
          Config config = over_tcp("auto");
          config.calibrate = true;  // makes the engine use the link settings
          config.link_gbit = gbit;
          config.link_latency_us = 20;
          return config;
        });
  }
}

TEST(Compression, RefusesCallsThatCannotBeRounded) {
  testing::run_ranks(
      2,
      [](Context& context) {
        Group& world = *context.world();
        std::vector<float> data(1000);
        const Buffer floats{data.data(), 1000, DType::f32};
        const Buffer integers{data.data(), 1000, DType::i32};
        const CallOptions int8{.compression = Compression{Codec::int8}};
        EXPECT_THROW(world.all_reduce(integers, integers, ReduceKind::sum, int8), InvalidArgument);
        EXPECT_THROW(world.all_reduce(floats, floats, ReduceKind::max, int8), InvalidArgument);
        EXPECT_THROW(world.broadcast(floats, 0, int8), InvalidArgument);
        EXPECT_THROW(world.all_reduce(floats, floats, ReduceKind::sum,
                                      {.compression = Compression{Codec::topk, 0}}),
                     InvalidArgument);
        EXPECT_THROW(
            context.group("odd", {0, 1}, std::chrono::seconds(1), Compression{Codec::topk, 1.5}),
            InvalidArgument);
        EXPECT_THROW(codec_named("int9"), InvalidArgument);
      },
      [](int) { return over_tcp("none"); });
}

/// Nothing is lost: the result and the residuals of all ranks add up to the exact sum, or to the
/// exact average times the number of ranks.
TEST(Compression, TheRoundingErrorIsReturnedOnce) {
  constexpr std::size_t kCount = 50'003;
  for (const int size : {2, 3}) {
    testing::run_ranks(
        size,
        [&](Context& context) {
          Group& world = *context.world();
          for (const std::string_view name : kCodecs) {
            const Compression codec{codec_named(name), 0.01};
            for (const ReduceKind kind : {ReduceKind::sum, ReduceKind::avg}) {
              std::vector<float> exact = given(world.rank(), kCount);
              std::vector<float> sum(kCount), left(kCount, 7);
              const Buffer in{exact.data(), kCount, DType::f32};
              const Buffer out{sum.data(), kCount, DType::f32};
              const Buffer kept{left.data(), kCount, DType::f32};
              world.all_reduce(in, out, kind, {.compression = codec, .left_out = kept}).wait();
              world.all_reduce(in, in, kind).wait();
              world.all_reduce(kept, kept, kind).wait();
              float most = 0;
              for (std::size_t i = 0; i < kCount; ++i)
                most = std::max(most, std::abs(exact[i] - sum[i] - left[i]));
              EXPECT_LT(most, 1e-4F) << name << " of " << size << ", " << name_of(kind);
            }
          }
        },
        [](int) { return over_tcp("none"); });
  }
}

TEST(Compression, AReduceScatterReturnsItsRoundingError) {
  constexpr std::size_t kPart = 20'011;
  testing::run_ranks(
      3,
      [](Context& context) {
        Group& world = *context.world();
        std::vector<float> all = given(world.rank(), 3 * kPart), left(3 * kPart), sum(kPart);
        std::vector<float> exact(kPart), kept(kPart);
        const auto whole = [](std::vector<float>& v) {
          return Buffer{v.data(), v.size(), DType::f32};
        };
        world
            .reduce_scatter(whole(all), whole(sum), ReduceKind::sum,
                            {.compression = Compression{Codec::int4}, .left_out = whole(left)})
            .wait();
        world.reduce_scatter(whole(all), whole(exact), ReduceKind::sum).wait();
        world.reduce_scatter(whole(left), whole(kept), ReduceKind::sum).wait();
        for (std::size_t i = 0; i < kPart; ++i)
          ASSERT_NEAR(exact[i], sum[i] + kept[i], 1e-4F) << "element " << i;
      },
      [](int) { return over_tcp("none"); });
}

TEST(Compression, AnExactSumHasNoRoundingError) {
  testing::run_ranks(
      2,
      [](Context& context) {
        std::vector<float> data(100'000, 1 + 0x1p-20F), left(100'000, 7), few(10);
        const Buffer buffer{data.data(), data.size(), DType::f32};
        const auto keeping = [](std::vector<float>& memory) {
          return CallOptions{.left_out = {memory.data(), memory.size(), DType::f32}};
        };
        context.world()->all_reduce(buffer, buffer, ReduceKind::sum, keeping(left)).wait();
        EXPECT_THAT(left, Each(0.0F));
        EXPECT_THROW(context.world()->all_reduce(buffer, buffer, ReduceKind::sum, keeping(few)),
                     InvalidArgument);
        EXPECT_THROW(context.world()->all_reduce(buffer, buffer, ReduceKind::sum, keeping(data)),
                     InvalidArgument);
      },
      [](int) { return over_tcp("none"); });
}

TEST(Compression, RanksThatChooseDifferentCodecsRaise) {
  for (const bool by_ratio : {false, true}) {
    const auto errors = testing::run_failing_ranks(
        2,
        [by_ratio](Context& context) {
          std::vector<float> data(100'000);
          const Buffer buffer{data.data(), data.size(), DType::f32};
          Compression compression{context.rank() == 0 ? Codec::int8 : Codec::none};
          if (by_ratio) compression = {Codec::topk, context.rank() == 0 ? 0.01 : 0.02};
          context.world()
              ->all_reduce(buffer, buffer, ReduceKind::sum, {.compression = compression})
              .wait();
        },
        [](int) { return over_tcp("none"); });
    EXPECT_THAT(errors, Each(HasSubstr(by_ratio ? "in topk of 41 in 4096" : "in int8")));
  }
  const auto at_start = testing::run_failing_ranks(
      2, [](Context&) {}, [](int rank) { return over_tcp(rank == 0 ? "int8" : "bf16"); });
  EXPECT_THAT(at_start, Each(HasSubstr("compression")));
}

}  // namespace
}  // namespace mccl
