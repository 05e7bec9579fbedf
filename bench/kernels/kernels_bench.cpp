// Measures the kernels in cache, beside a copy of the same bytes.
//
// bytes_per_second counts the bytes of the result. These are the bytes copied by memcpy, or those
// of dst in a reduction dst = dst op b, which also reads as many from b. For a checksum they are
// the bytes of the input. Compare medians of one run:
//   --benchmark_repetitions=9 --benchmark_enable_random_interleaving=true
#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "in_cache.h"
#include "kernels/checksum.h"
#include "kernels/reduce.h"

namespace mccl::kernels {
namespace {

void copy(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  Zeros from(bytes);
  Zeros to(bytes);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::DoNotOptimize(to.data());
    benchmark::ClobberMemory();
  }
  count_bytes(state);
}

void reduce_onto_first(benchmark::State& state, DType dtype, ReduceKind kind) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  Zeros a(bytes);
  Zeros b(bytes);
  for (auto _ : state) {
    reduce(dtype, kind, a.data(), b.data(), a.data(), bytes / size_of(dtype));
    benchmark::ClobberMemory();
  }
  count_bytes(state);
}

void fold_four(benchmark::State& state, DType dtype) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  std::vector<Zeros> arrays;
  for (int i = 0; i < 4; ++i) arrays.emplace_back(bytes);
  std::vector<const void*> operands;
  for (Zeros& array : arrays) operands.push_back(array.data());
  Zeros to(bytes);
  for (auto _ : state) {
    fold(dtype, ReduceKind::avg, operands, to.data(), bytes / size_of(dtype));
    benchmark::ClobberMemory();
  }
  count_bytes(state);
}

void checksum(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  Zeros data(bytes);
  for (auto _ : state) benchmark::DoNotOptimize(crc32c(0, {data.data(), bytes}));
  count_bytes(state);
}

void in_cache(benchmark::internal::Benchmark* benchmark) {
  benchmark->RangeMultiplier(4)->Range(kSmallest, kLargest);
}

BENCHMARK(copy)->Apply(in_cache);
BENCHMARK_CAPTURE(reduce_onto_first, f32_sum, DType::f32, ReduceKind::sum)->Apply(in_cache);
BENCHMARK_CAPTURE(reduce_onto_first, f16_sum, DType::f16, ReduceKind::sum)->Apply(in_cache);
BENCHMARK_CAPTURE(reduce_onto_first, bf16_sum, DType::bf16, ReduceKind::sum)->Apply(in_cache);
BENCHMARK_CAPTURE(reduce_onto_first, f64_sum, DType::f64, ReduceKind::sum)->Apply(in_cache);
BENCHMARK_CAPTURE(reduce_onto_first, i32_sum, DType::i32, ReduceKind::sum)->Apply(in_cache);
BENCHMARK_CAPTURE(reduce_onto_first, f32_max, DType::f32, ReduceKind::max)->Apply(in_cache);
BENCHMARK_CAPTURE(fold_four, f32_avg, DType::f32)->Apply(in_cache);
BENCHMARK_CAPTURE(fold_four, f16_avg, DType::f16)->Apply(in_cache);
BENCHMARK(checksum)->Apply(in_cache);

}  // namespace
}  // namespace mccl::kernels
