// Calls whose buffers other ranks of the host read where they lie.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "mccl/context.h"
#include "support/ranks.h"

namespace mccl {
namespace {

using testing::run_ranks;
using testing::test_config;

constexpr int kRanks = 4;
constexpr std::size_t kPart = 20'000;  // elements of one rank's part
constexpr std::size_t kWhole = kPart * kRanks;

/// A buffer of i64 that lies in shared memory on ranks for which `shared` is true.
class Numbers {
 public:
  Numbers(Context& context, bool shared, std::size_t count) : count_(count) {
    const std::size_t bytes = count * sizeof(std::int64_t);
    memory_ = shared ? context.allocate(bytes)
                     : std::shared_ptr<std::byte>(new std::byte[bytes],
                                                  std::default_delete<std::byte[]>());
    std::memset(memory_.get(), 0x55, bytes);
  }

  std::int64_t* data() { return reinterpret_cast<std::int64_t*>(memory_.get()); }
  Buffer buffer() { return {memory_.get(), count_, DType::i64}; }
  void fill(int rank) {
    for (std::size_t i = 0; i < count_; ++i) data()[i] = of(rank, i);
  }
  static std::int64_t of(int rank, std::size_t i) {
    return static_cast<std::int64_t>(i % 1013) * (rank + 2) + rank;
  }

 private:
  std::size_t count_;
  std::shared_ptr<std::byte> memory_;
};

std::int64_t sum_at(std::size_t i) {
  std::int64_t sum = 0;
  for (int rank = 0; rank < kRanks; ++rank) sum += Numbers::of(rank, i);
  return sum;
}

/// Runs every collective that moves data through shared memory, in and out of place.
void call_all(Context& context, bool shared) {
  const auto world = context.world();
  const int rank = context.rank();
  const auto own = static_cast<std::size_t>(rank) * kPart;
  Numbers in(context, shared, kWhole), out(context, shared, kWhole), part(context, shared, kPart);
  in.fill(rank);
  world->all_reduce(in.buffer(), out.buffer(), ReduceKind::sum).wait();
  for (std::size_t i = 0; i < kWhole; ++i) ASSERT_EQ(out.data()[i], sum_at(i)) << "all_reduce";
  world->all_reduce(in.buffer(), in.buffer(), ReduceKind::sum).wait();
  for (std::size_t i = 0; i < kWhole; ++i) ASSERT_EQ(in.data()[i], sum_at(i)) << "in place";
  in.fill(rank);
  world->reduce_scatter(in.buffer(), part.buffer(), ReduceKind::sum).wait();
  for (std::size_t i = 0; i < kPart; ++i) ASSERT_EQ(part.data()[i], sum_at(own + i)) << "scatter";
  part.fill(rank);
  world->all_gather(part.buffer(), out.buffer()).wait();
  for (std::size_t i = 0; i < kWhole; ++i)
    ASSERT_EQ(out.data()[i], Numbers::of(static_cast<int>(i / kPart), i % kPart)) << "all_gather";
  world->all_to_all(in.buffer(), out.buffer()).wait();
  for (std::size_t i = 0; i < kWhole; ++i)
    ASSERT_EQ(out.data()[i], Numbers::of(static_cast<int>(i / kPart), own + i % kPart)) << "all";
  for (int root = 0; root < kRanks; ++root) {
    out.fill(rank);
    world->broadcast(out.buffer(), root).wait();
    // The root may change its buffer as soon as its call is done.
    for (std::size_t i = 0; i < kWhole; ++i) ASSERT_EQ(out.data()[i], Numbers::of(root, i));
  }
}

void run_with(const char* algorithm, bool (*shares)(int rank)) {
  const auto config = [algorithm](int) {
    Config made = test_config();
    made.algorithm = algorithm;
    return made;
  };
  run_ranks(
      kRanks,
      [shares](Context& context) {
        for (int turn = 0; turn < 5; ++turn) call_all(context, shares(context.rank()));
      },
      config);
}

TEST(SharedBuffers, GiveTheSameResults) {
  for (const char* algorithm : {"auto", "one_shot", "two_shot"})
    run_with(algorithm, [](int) { return true; });
}

TEST(SharedBuffers, MayBeUsedOnSomeRanksOnly) {
  for (const char* algorithm : {"auto", "one_shot", "two_shot"})
    run_with(algorithm, [](int rank) { return rank % 2 == 1; });
}

constexpr std::size_t kLong = 140'000;  // elements; more than 1 MiB

/// The ranks copy large buffers from the memory of each other's processes.
void copy_from_processes(int ranks) {
  const auto config = [](int) {
    Config made = test_config();
    made.cross_memory = "on";
    return made;
  };
  run_ranks(
      ranks,
      [](Context& context) {
        const auto world = context.world();
        const int rank = context.rank(), size = context.size();
        const auto own = static_cast<std::size_t>(rank) * kLong;
        const std::size_t whole = kLong * static_cast<std::size_t>(size);
        Numbers in(context, false, whole), out(context, false, whole), part(context, false, kLong);
        for (int turn = 0; turn < 20; ++turn) {
          in.fill(rank + turn);
          world->all_to_all(in.buffer(), out.buffer()).wait();
          in.fill(-1);  // A rank may change its buffer as soon as its call is done.
          for (std::size_t i = 0; i < whole; ++i) {
            const int from = static_cast<int>(i / (kLong));
            ASSERT_EQ(out.data()[i], Numbers::of(from + turn, own + i % (kLong)));
          }
          part.fill(rank + turn);
          world->all_gather(part.buffer(), out.buffer()).wait();
          part.fill(-1);
          for (std::size_t i = 0; i < whole; ++i) {
            const int from = static_cast<int>(i / (kLong));
            ASSERT_EQ(out.data()[i], Numbers::of(from + turn, i % (kLong)));
          }
          const int root = turn % size;
          in.fill(rank + turn);
          world->scatter(in.buffer(), part.buffer(), root).wait();
          in.fill(-1);
          for (std::size_t i = 0; i < kLong; ++i)
            ASSERT_EQ(part.data()[i], Numbers::of(root + turn, own + i));
        }
      },
      config);
}

TEST(CopiesFromProcesses, GiveTheSameResults) {
  for (const int ranks : {2, 4}) copy_from_processes(ranks);
}

TEST(SharedBuffers, OutliveTheirContext) {
  std::vector<std::shared_ptr<std::byte>> kept(2);
  run_ranks(2, [&](Context& context) {
    kept[static_cast<std::size_t>(context.rank())] = context.allocate(1000);
  });
  for (const auto& memory : kept) std::memset(memory.get(), 1, 1000);
}

}  // namespace
}  // namespace mccl
