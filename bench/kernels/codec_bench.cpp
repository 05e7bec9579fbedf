// Measures codecs in cache. bytes_per_second counts the bytes of floats: those encoded, those
// decoded, or those of the sum of two operands. Encoding topk includes the selection. Compare with
// `copy` of kernels_bench.cpp.
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "base/coding.h"
#include "in_cache.h"
#include "kernels/codec/codec.h"

namespace mccl::kernels {
namespace {

constexpr int kOperands = 2;

/// Returns values like gradients, of every magnitude. Zeros would be the easiest case for topk.
std::vector<float> normal_numbers(std::size_t count) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& x : values) x = normal(random);
  return values;
}

/// The floats of one measurement, and their encoded blocks.
struct Data {
  Data(const benchmark::State& state, Codec codec)
      : coding(coding_of({codec, 0.01}, kOperands)),
        values(normal_numbers(static_cast<std::size_t>(state.range(0)) / sizeof(float))),
        blocks(coding.bytes(values.size(), Coded::contribution)),
        sums(coding.bytes(values.size(), Coded::sum)) {
    encode(coding, Coded::contribution, DType::f32, values.data(), values.size(), blocks.data());
  }

  Coding coding;
  std::vector<float> values;
  std::vector<std::byte> blocks;
  std::vector<std::byte> sums;
};

void encoding(benchmark::State& state, Codec codec) {
  Data data(state, codec);
  for (auto _ : state) {
    encode(data.coding, Coded::contribution, DType::f32, data.values.data(), data.values.size(),
           data.blocks.data());
    benchmark::ClobberMemory();
  }
  count_bytes(state);
}

void decoding(benchmark::State& state, Codec codec) {
  Data data(state, codec);
  for (auto _ : state) {
    const bool good = decode(data.coding, Coded::contribution, DType::f32, data.blocks.data(),
                             data.values.size(), data.values.data());
    benchmark::DoNotOptimize(good);
    benchmark::ClobberMemory();
  }
  count_bytes(state);
}

void folding(benchmark::State& state, Codec codec) {
  Data data(state, codec);
  const std::vector<const std::byte*> operands(kOperands, data.blocks.data());
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        fold_to_sum(data.coding, operands, data.values.size(), 1, data.sums.data()));
    benchmark::ClobberMemory();
  }
  count_bytes(state);
}

void in_blocks(benchmark::internal::Benchmark* benchmark) {
  benchmark->RangeMultiplier(4)->Range(4 * kSmallest, kLargest);
}

#define MCCL_CODEC(name)                                                                   \
  BENCHMARK_CAPTURE(encoding, name, Codec::name)->Name("encode/" #name)->Apply(in_blocks); \
  BENCHMARK_CAPTURE(decoding, name, Codec::name)->Name("decode/" #name)->Apply(in_blocks); \
  BENCHMARK_CAPTURE(folding, name, Codec::name)->Name("fold_coded/" #name)->Apply(in_blocks)

MCCL_CODEC(fp16);
MCCL_CODEC(bf16);
MCCL_CODEC(int8);
MCCL_CODEC(fp8_e4m3);
MCCL_CODEC(fp8_e5m2);
MCCL_CODEC(int4);
MCCL_CODEC(topk);

}  // namespace
}  // namespace mccl::kernels
