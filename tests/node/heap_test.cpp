#include "node/heap.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "base/machine.h"
#include "mccl/error.h"
#include "node/arena.h"
#include "support/node_process.h"

namespace mccl::node {
namespace {

constexpr std::size_t kHeap = std::size_t{512} << 20;

class HeapTest : public ::testing::Test {
 protected:
  static std::size_t pages(std::size_t count) { return count * page_bytes(); }

  const std::shared_ptr<Arena> arena_ = Arena::make(pages(4), kHeap);
  Heap& heap_ = *arena_->heap();
};

TEST_F(HeapTest, APeerReadsWhatTheOwnerWrites) {
  const PeerArena peer(NodeProcess::copy(arena_->descriptor()));
  std::byte* const memory = heap_.allocate(pages(2) + 5);
  std::memset(memory, 7, pages(2) + 5);
  const std::uint64_t place = heap_.place_of(memory, pages(2) + 5);
  ASSERT_NE(place, 0U);
  ASSERT_EQ(peer.heap().size(), kHeap);
  ASSERT_TRUE(peer.heap().open(place - peer.heap_begin(), pages(2) + 5));
  const std::byte* const seen = peer.heap().data() + (place - peer.heap_begin());
  EXPECT_EQ(std::memcmp(seen, memory, pages(2) + 5), 0);
  memory[pages(2)] = std::byte{9};
  EXPECT_EQ(seen[pages(2)], std::byte{9});
}

TEST_F(HeapTest, KnowsWhichMemoryLiesInIt) {
  const std::byte ordinary[16] = {};
  EXPECT_EQ(heap_.place_of(ordinary, 1), 0U);
  std::byte* const memory = heap_.allocate(pages(1));
  EXPECT_EQ(heap_.place_of(memory + 3, 10), heap_.place_of(memory, 1) + 3);
  EXPECT_EQ(heap_.place_of(memory - 1, 4), 0U);
  EXPECT_EQ(heap_.place_of(memory, kHeap), heap_.place_of(memory, 1));
  EXPECT_EQ(heap_.place_of(memory, kHeap + 1), 0U);
  EXPECT_EQ(heap_.place_of(memory + kHeap - 1, 2), 0U);
  EXPECT_EQ(heap_.place_of(memory, SIZE_MAX), 0U);
  EXPECT_EQ(heap_.place_of(nullptr, 0), 0U);
  EXPECT_EQ(heap_.place_of(ordinary, 1), 0U);
}

TEST_F(HeapTest, AllocationsDoNotOverlap) {
  std::mt19937 random(1);
  std::vector<std::pair<std::byte*, std::size_t>> taken;
  for (int turn = 0; turn < 2000; ++turn) {
    if (taken.size() < 20 && random() % 2 == 0) {
      const std::size_t bytes = 1 + random() % pages(30);
      std::byte* const memory = heap_.allocate(bytes);
      ASSERT_EQ(reinterpret_cast<std::uintptr_t>(memory) % page_bytes(), 0U);
      for (const auto& [other, length] : taken)
        ASSERT_TRUE(memory + bytes <= other || other + length <= memory);
      taken.emplace_back(memory, bytes);
    } else if (!taken.empty()) {
      std::swap(taken[random() % taken.size()], taken.back());
      heap_.release(taken.back().first);
      taken.pop_back();
    }
  }
  for (const auto& [memory, bytes] : taken) heap_.release(memory);
  EXPECT_EQ(heap_.taken(), 0U);
  EXPECT_LE(heap_.spare(), Heap::kSpareBytes);
}

TEST_F(HeapTest, FreedMemoryIsUsedAgain) {
  std::byte* const first = heap_.allocate(pages(3));
  heap_.release(first);
  EXPECT_EQ(heap_.spare(), pages(3));
  EXPECT_EQ(heap_.allocate(pages(3)), first);
  EXPECT_EQ(heap_.spare(), 0U);
}

TEST_F(HeapTest, KeepsNoFreedMemoryAfterTheJob) {
  std::byte* const first = heap_.allocate(pages(3));
  heap_.release(heap_.allocate(pages(5)));
  heap_.keep_no_spare();
  EXPECT_EQ(heap_.spare(), 0U);
  heap_.release(first);
  EXPECT_EQ(heap_.spare(), 0U);
}

/// A program that locks its memory must not allocate the pages of whole heaps.
TEST_F(HeapTest, LockingTheMemoryOfTheProcessAllocatesLittle) {
  const pid_t child = ::fork();
  if (child == 0) {
    const auto arena = Arena::make(page_bytes(), kHeap);
    const PeerArena peer(NodeProcess::copy(arena->descriptor()));
    constexpr int kNotAllowed = 2;
    if (::mlockall(MCL_CURRENT | MCL_FUTURE) != 0) ::_exit(kNotAllowed);
    std::byte* const memory = arena->heap()->allocate(pages(3));
    const std::size_t at = arena->heap()->place_of(memory, pages(3)) - peer.heap_begin();
    const bool opened = peer.heap().open(at, pages(3));
    const bool locked = ::mlockall(MCL_CURRENT) == 0;
    struct stat status = {};
    ::fstat(arena->descriptor(), &status);
    ::_exit(opened && locked && status.st_blocks * 512 < (8 << 20) ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "this user may not lock memory";
  EXPECT_EQ(status, 0);
}

TEST_F(HeapTest, KeepsALimitedAmountOfFreedMemory) {
  const std::size_t large = Heap::kSpareBytes / 4;
  std::vector<std::byte*> taken;
  for (int i = 0; i < 6; ++i) taken.push_back(heap_.allocate(large));
  for (std::byte* memory : taken) heap_.release(memory);
  EXPECT_EQ(heap_.spare(), Heap::kSpareBytes);
  EXPECT_EQ(heap_.allocate(large), taken.back()) << "the memory that was freed last is used first";
  heap_.release(taken.back());
  EXPECT_THROW(heap_.allocate(kHeap + 1), Error);
  EXPECT_THROW(heap_.allocate(SIZE_MAX), Error);
  // Memory that is kept gives way to a request that needs it.
  EXPECT_NE(heap_.allocate(kHeap - pages(1)), nullptr);
  EXPECT_EQ(heap_.spare(), 0U);
}

TEST_F(HeapTest, IgnoresWhatItDidNotAllocate) {
  std::byte* const memory = heap_.allocate(pages(2));
  heap_.release(memory + page_bytes());
  heap_.release(nullptr);
  EXPECT_EQ(heap_.taken(), pages(2));
  heap_.release(memory);
  heap_.release(memory);
  EXPECT_EQ(heap_.taken(), 0U);
  EXPECT_EQ(heap_.spare(), pages(2));
}

TEST_F(HeapTest, AForkedProcessFreesNothingOfItsParent) {
  const auto memory = allocate(arena_, pages(2));
  memory.get()[0] = std::byte{5};
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    heap_.release(memory.get());
    bool refused = false;
    try {
      heap_.allocate(1);
    } catch (const Error&) {
      refused = true;
    }
    ::_exit(refused && heap_.taken() == pages(2) ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(memory.get()[0], std::byte{5});
}

TEST_F(HeapTest, MemoryOutlivesTheOwnersOtherReferences) {
  std::shared_ptr<Arena> arena = Arena::make(pages(4), kHeap);
  const auto memory = allocate(arena, pages(1));
  arena.reset();
  std::memset(memory.get(), 1, pages(1));
}

TEST_F(HeapTest, ManyThreadsAllocate) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 300; ++i) {
        const auto memory = allocate(arena_, pages(1 + (i + t) % 5));
        std::memset(memory.get(), t, page_bytes());
        ASSERT_EQ(memory.get()[page_bytes() - 1], std::byte(t));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(heap_.taken(), 0U);
}

TEST(HeapOfNoArena, IsOrdinaryMemory) {
  for (const auto& arena : {std::shared_ptr<Arena>(), Arena::make(page_bytes())}) {
    const auto memory = allocate(arena, 100);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.get()) % page_bytes(), 0U);
    std::memset(memory.get(), 1, 100);
  }
}

TEST_F(HeapTest, WithoutAddressSpaceItIsOrdinaryMemory) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const rlimit little = {std::size_t{1} << 20, std::size_t{1} << 20};
    const std::shared_ptr<Arena> arena = Arena::make(page_bytes(), kHeap);
    ::setrlimit(RLIMIT_AS, &little);
    const bool refused = arena->heap()->allocate(100) == nullptr;
    ::_exit(refused && has_limited_address_space() && heap_bytes() == 0 ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(HeapOfNoArena, APeerWithoutAHeapHasNoneToRead) {
  const auto arena = Arena::make(page_bytes());
  EXPECT_TRUE(PeerArena(NodeProcess::copy(arena->descriptor())).heap().size() == 0);
}

TEST(HeapOfNoArena, AnInvalidHeaderIsRefused) {
  const auto arena = Arena::make(page_bytes(), kHeap);
  for (const std::uint64_t heap : {std::uint64_t{1}, std::uint64_t{page_bytes() + kHeap + 1},
                                   std::uint64_t{UINT64_MAX}, 2 * kHeap}) {
    arena->header().heap = heap;
    EXPECT_THROW(PeerArena(NodeProcess::copy(arena->descriptor())), CorruptionError) << heap;
  }
}

}  // namespace
}  // namespace mccl::node
