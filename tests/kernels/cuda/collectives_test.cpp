// Runs the GPU kernels of several ranks on the host, call after call, with threads that advance in
// random order. Every result is compared with what the call must give.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>

#include "kernels/cuda/gpu_on_host.h"
// The kernels need the functions above.
#include "kernels/cuda/broadcast.cuh"
#include "kernels/cuda/flagged.cuh"
#include "kernels/cuda/packed.cuh"
#include "kernels/cuda/staged.cuh"

namespace mccl::kernels::cuda {
namespace {

using ::mccl::testing::KernelLaunch;

/// Zeroed memory whose pages exist once they are written.
class Pages {
 public:
  explicit Pages(std::size_t bytes)
      : bytes_(bytes),
        memory_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
  }
  ~Pages() { munmap(memory_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(memory_); }

 private:
  const std::size_t bytes_;
  void* const memory_;
};

using Kernel = void (*)(const Fabric&, const KernelArguments&);
enum class Result { sum, sum_of_part, gather, exchange, broadcast };

struct Kind {
  const char* name;
  Kernel kernel;
  Result result;
  std::size_t most_bytes;  ///< Maximum of KernelArguments::bytes; 0 means any length.
};

std::vector<Kind> kinds(std::size_t ranks) {
  const std::size_t others = ranks - 1;
  return {
      {"flagged_sum", &flagged<F32, true>, Result::sum, kMostFlagged / others},
      {"flagged_parts", &flagged_parts<F32, true>, Result::sum, kMostFlagged / 2 * ranks},
      {"flagged_scatter", &flagged_parts<F32, false>, Result::sum_of_part, kMostFlagged},
      {"flagged_gather", &flagged<F32, false>, Result::gather, kMostFlagged},
      {"flagged_broadcast", &flagged_broadcast, Result::broadcast, kMostFlaggedBroadcast},
      {"packed_sum", &packed<F32>, Result::sum, kMostPacked / others},
      {"packed_parts", &packed_parts<F32>, Result::sum, kMostPacked / 2 * ranks},
      {"all_reduce", &staged<F32, Shape::all_reduce>, Result::sum, 0},
      {"reduce_scatter", &staged<F32, Shape::reduce_scatter>, Result::sum_of_part, 0},
      {"all_gather", &staged<F32, Shape::all_gather>, Result::gather, 0},
      {"all_to_all", &staged<F32, Shape::all_to_all>, Result::exchange, 0},
      {"broadcast", &broadcast, Result::broadcast, 0},
  };
}

/// Small whole numbers, whose sums are exact.
float number(std::size_t call, std::size_t rank, std::size_t index) {
  return static_cast<float>((call * 31 + rank * 7 + index * 13 + index / 97) % 101);
}

/// One call of all ranks, with the memory of each.
struct Call {
  std::size_t number;
  Kind kind;
  std::size_t count;  ///< Elements of KernelArguments::bytes.
  int root;
  unsigned blocks, threads;
  std::vector<std::vector<float>> in, out;

  Call(std::size_t number, const Kind& kind, std::size_t count, int root, unsigned blocks,
       unsigned threads, std::size_t ranks)
      : number(number), kind(kind), count(count), root(root), blocks(blocks), threads(threads) {
    const bool gives_parts = kind.result == Result::sum_of_part || kind.result == Result::exchange;
    const bool takes_parts = kind.result == Result::gather || kind.result == Result::exchange;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      in.emplace_back(count * (gives_parts ? ranks : 1));
      for (std::size_t i = 0; i < in[rank].size(); ++i) in[rank][i] = cuda::number(number, rank, i);
      out.emplace_back(count * (takes_parts ? ranks : 1) + 1, -1.0F);
    }
  }

  float expected(std::size_t rank, std::size_t index) const {
    const std::size_t ranks = in.size();
    float sum = 0;
    switch (kind.result) {
      case Result::sum:
        for (std::size_t peer = 0; peer < ranks; ++peer) sum += in[peer][index];
        return sum;
      case Result::sum_of_part:
        for (std::size_t peer = 0; peer < ranks; ++peer) sum += in[peer][rank * count + index];
        return sum;
      case Result::gather:
        return in[index / count][index % count];
      case Result::exchange:
        return in[index / count][rank * count + index % count];
      case Result::broadcast:
        return in[static_cast<std::size_t>(root)][index];
    }
    return 0;
  }

  std::string describe() const {
    return std::string(kind.name) + " #" + std::to_string(number) + " of " + std::to_string(count) +
           " elements, root " + std::to_string(root) + ", grid " + std::to_string(blocks) + "x" +
           std::to_string(threads);
  }

  void check() const {
    for (std::size_t rank = 0; rank < out.size(); ++rank) {
      const bool keeps = kind.result == Result::broadcast && static_cast<int>(rank) == root;
      for (std::size_t i = 0; !keeps && i + 1 < out[rank].size(); ++i) {
        ASSERT_EQ(out[rank][i], expected(rank, i))
            << describe() << ", rank " << rank << ", element " << i;
      }
      ASSERT_EQ(out[rank].back(), -1.0F) << describe() << " writes past its end on rank " << rank;
    }
  }
};

class Ranks {
 public:
  explicit Ranks(std::size_t count) {
    const StagingLayout layout = layout_of(static_cast<int>(count));
    for (std::size_t rank = 0; rank < count; ++rank) {
      areas_.push_back(std::make_unique<Pages>(layout.bytes));
      counters_.push_back(std::make_unique<Counters>());
      alarms_.push_back(std::make_unique<Alarm>());
    }
    for (std::size_t rank = 0; rank < count; ++rank) {
      Fabric fabric{};
      fabric.rank = static_cast<int>(rank);
      fabric.ranks = static_cast<int>(count);
      for (std::size_t peer = 0; peer < count; ++peer) fabric.areas[peer] = areas_[peer]->data();
      fabric.layout = layout;
      fabric.counters = counters_[rank].get();
      fabric.alarm = alarms_[rank].get();
      fabric.patience_ns = ~std::uint64_t{0};
      fabrics_.push_back(fabric);
    }
  }

  /// Makes all calls, in order, on all ranks.
  void run(std::vector<Call>& calls, unsigned seed) {
    std::vector<std::vector<KernelLaunch>> streams(fabrics_.size());
    for (std::size_t rank = 0; rank < fabrics_.size(); ++rank) {
      for (Call& call : calls) {
        const KernelArguments task{reinterpret_cast<const std::byte*>(call.in[rank].data()),
                                   reinterpret_cast<std::byte*>(call.out[rank].data()),
                                   call.count * sizeof(float), 1.0F, call.root};
        streams[rank].push_back({call.blocks, call.threads, [this, rank, task, &call] {
                                   call.kind.kernel(fabrics_[rank], task);
                                 }});
      }
    }
    testing::GpusOnHost(seed).run(streams);
    for (const Call& call : calls) ASSERT_NO_FATAL_FAILURE(call.check());
  }

  std::size_t size() const { return fabrics_.size(); }

 private:
  std::vector<std::unique_ptr<Pages>> areas_;
  std::vector<std::unique_ptr<Counters>> counters_;
  std::vector<std::unique_ptr<Alarm>> alarms_;
  std::vector<Fabric> fabrics_;
};

class CudaCollectives : public ::testing::TestWithParam<std::size_t> {};
/// Calls of many megabytes, which take seconds.
class CudaRounds : public ::testing::TestWithParam<std::size_t> {};

TEST_P(CudaCollectives, RandomCallsInARow) {
  Ranks ranks(GetParam());
  const std::vector<Kind> all = kinds(ranks.size());
  for (unsigned seed = 1; seed <= 3; ++seed) {
    std::mt19937 chance(seed);
    const auto draw = [&](std::size_t from, std::size_t to) {
      return from + chance() % (to - from + 1);
    };
    std::vector<Call> calls;
    for (std::size_t number = 0; number < 24; ++number) {
      const Kind& kind = all[draw(0, all.size() - 1)];
      const bool is_short = kind.most_bytes != 0;
      const std::size_t most = is_short ? std::min<std::size_t>(kind.most_bytes, 6000) : 200'000;
      const std::size_t count = draw(1, draw(0, 1) ? most / sizeof(float) : 40);
      calls.emplace_back(number, kind, count, static_cast<int>(draw(0, ranks.size() - 1)),
                         static_cast<unsigned>(draw(1, 3)), 32U, ranks.size());
    }
    ASSERT_NO_FATAL_FAILURE(ranks.run(calls, seed)) << "seed " << seed;
  }
}

/// The root of a broadcast receives no data, so it could overtake the others.
TEST_P(CudaCollectives, ShortBroadcastsInARow) {
  Ranks ranks(GetParam());
  const std::vector<Kind> all = kinds(ranks.size());
  const auto kind = std::find_if(
      all.begin(), all.end(), [](const Kind& each) { return each.kernel == &flagged_broadcast; });
  std::vector<Call> calls;
  for (std::size_t number = 0; number < 60; ++number) {
    calls.emplace_back(number, *kind, 100, 0, 1U, 32U, ranks.size());
  }
  ASSERT_NO_FATAL_FAILURE(ranks.run(calls, 11));
}

/// Grids that do not divide a round, and lengths of several rounds or pieces.
TEST_P(CudaRounds, CallsOfSeveralRounds) {
  Ranks ranks(GetParam());
  std::vector<Call> calls;
  for (const Kind& kind : kinds(ranks.size())) {
    if (kind.most_bytes != 0) continue;
    const bool divides = kind.result == Result::sum;
    const std::size_t part = (kRound * 3 / 2 + 20) / sizeof(float);
    const std::size_t count = divides ? part * ranks.size() : part;
    calls.emplace_back(calls.size(), kind, count, 1, 3U, 96U, ranks.size());
    calls.emplace_back(calls.size(), kind, 1000, 0, 2U, 32U, ranks.size());
  }
  ASSERT_NO_FATAL_FAILURE(ranks.run(calls, 5));
}

INSTANTIATE_TEST_SUITE_P(Sizes, CudaCollectives, ::testing::Values(2, 3, 4));
INSTANTIATE_TEST_SUITE_P(Sizes, CudaRounds, ::testing::Values(2, 3));

TEST(CudaCollectivesOfEight, RandomCallsInARow) {
  Ranks ranks(8);
  std::vector<Call> calls;
  for (const Kind& kind : kinds(ranks.size())) {
    for (const std::size_t count : {1U, 37U, 900U}) {
      calls.emplace_back(calls.size(), kind, count, 5, 1U, 32U, ranks.size());
    }
  }
  std::shuffle(calls.begin(), calls.end(), std::mt19937(3));
  ASSERT_NO_FATAL_FAILURE(ranks.run(calls, 7));
}

}  // namespace
}  // namespace mccl::kernels::cuda
