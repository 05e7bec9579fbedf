// Publications that neighbours read in the rank's heap instead of the window.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "mccl/error.h"
#include "node/window.h"
#include "support/node_process.h"
#include "support/process_memory.h"

namespace mccl::node {
namespace {

constexpr std::size_t kReadCallBytes = std::size_t{16} << 10;

/// Two ranks, the second of which has a heap that the first reads.
class ReadInPlace : public ::testing::Test {
 protected:
  static constexpr std::size_t kBytes = 1000;

  ReadInPlace() {
    Range own =
        reader_.arena().allocate(window_bytes(kReadCallBytes), 1, WindowFront::bytes(line_bytes()));
    Range theirs =
        owner_->allocate(window_bytes(kReadCallBytes), 1, WindowFront::bytes(line_bytes()));
    std::vector<Window::Neighbour> of_reader, of_owner;
    of_reader.push_back({1, peer_.map(theirs.place()), reader_.bell()});
    of_reader.back().heap = &peer_.heap();
    of_reader.back().heap_begin = peer_.heap_begin();
#ifdef __linux__
    of_reader.back().process = testing::own_process().memory(peer_.header());
#endif
    of_owner.push_back({0, reader_.passed().map(own.place()), reader_.bell()});
    reads_.emplace(2, std::move(own), std::move(of_reader), kReadCallBytes);
    owns_.emplace(2, std::move(theirs), std::move(of_owner), kReadCallBytes);
  }

  void begin(std::size_t published, const Places& places) {
    owns_->begin(1, published, 1, places);
    reads_->begin(1, published, 1);
    ASSERT_TRUE(owns_->open() && reads_->open());
    owns_->arrive();
    reads_->arrive();
    ASSERT_TRUE(reads_->arrived(1, 1));
  }
  void end() {
    owns_->end();
    reads_->end();
  }

  NodeProcess reader_;
  const std::shared_ptr<Arena> owner_ = Arena::make(std::size_t{4} << 20, std::size_t{1} << 20);
  const PeerArena peer_{NodeProcess::copy(owner_->descriptor())};
  std::byte* const memory_ = owner_->heap()->allocate(kBytes);
  const std::uint64_t place_ = owner_->heap()->place_of(memory_, kBytes);
  std::optional<Window> reads_;
  std::optional<Window> owns_;
};

TEST_F(ReadInPlace, FindsTheMemoriesThatTheRankShows) {
  memory_[17] = std::byte{42};
  begin(kBytes, {0, place_});
  EXPECT_FALSE(owns_->is_read_in_place(0));
  EXPECT_TRUE(owns_->is_read_in_place(1) && owns_->is_read_in_place());
  EXPECT_EQ(reads_->memory_of(1, 0, 0, 1), nullptr);
  ASSERT_NE(reads_->memory_of(1, 1, 17, 1), nullptr);
  EXPECT_EQ(*reads_->memory_of(1, 1, 17, 1), std::byte{42});
  EXPECT_FALSE(reads_->is_read_in_place());
  end();
  // The next call shows nothing.
  begin(kBytes, {});
  EXPECT_EQ(reads_->memory_of(1, 1, 17, 1), nullptr);
}

TEST_F(ReadInPlace, ARankWhoseCallFailsWithdrawsItsMemories) {
  begin(kBytes, {0, place_});
  EXPECT_NE(reads_->memory_of(1, 1, 0, 1), nullptr);
  EXPECT_NO_THROW(reads_->require_kept(1, 1));
  owns_->withdraw();
  // The data that were just read may have changed.
  EXPECT_THROW(reads_->require_kept(1, 1), PeerError);
  EXPECT_THROW(reads_->memory_of(1, 1, 0, 1), PeerError);
  // Data in the window stay.
  EXPECT_NO_THROW(reads_->require_kept(1, 0));
  EXPECT_EQ(reads_->memory_of(1, 0, 0, 1), nullptr);
}

TEST_F(ReadInPlace, APublicationInTheHeadIsCopied) {
  begin(CallHead::kInlineBytes, {place_, place_});
  EXPECT_FALSE(owns_->is_read_in_place());
  EXPECT_EQ(reads_->memory_of(1, 0, 0, 1), nullptr);
}

#ifdef __linux__
TEST_F(ReadInPlace, CopiesMemoryOfTheRanksProcess) {
  const std::vector<std::byte> there(kBytes, std::byte{7});
  std::vector<std::byte> here(100);
  const auto place = kInProcess | reinterpret_cast<std::uintptr_t>(there.data());
  begin(kBytes, {place, place_});
  EXPECT_TRUE(owns_->is_read_in_place(0));
  EXPECT_FALSE(reads_->copy_from_process(1, 1, 0, here)) << "it lies in the heap";
  ASSERT_TRUE(reads_->copy_from_process(1, 0, kBytes - here.size(), here));
  EXPECT_EQ(here, std::vector<std::byte>(here.size(), std::byte{7}));
  EXPECT_THROW(reads_->memory_of(1, 0, 0, 1), CorruptionError) << "it lies outside the heap";
  owns_->withdraw();
  EXPECT_THROW(reads_->copy_from_process(1, 0, 0, here), PeerError);
  end();
  begin(kBytes, {});
  EXPECT_FALSE(reads_->copy_from_process(1, 0, 0, here)) << "it lies in the window";
  end();
  begin(kBytes, {kInProcess, kInProcess | (UINT64_MAX / 2 - 1)});
  for (const std::size_t memory : {0U, 1U})
    EXPECT_THROW(reads_->copy_from_process(1, memory, 0, here), PeerError) << "no memory is there";
}
#endif

TEST_F(ReadInPlace, RefusesMemoryOutsideTheHeap) {
  const std::size_t size = peer_.heap().size();
  begin(kBytes, {place_, 1});
  EXPECT_NO_THROW(reads_->memory_of(1, 0, 0, size));
  EXPECT_THROW(reads_->memory_of(1, 0, 0, size + 1), CorruptionError);
  EXPECT_THROW(reads_->memory_of(1, 0, size, 1), CorruptionError);
  EXPECT_THROW(reads_->memory_of(1, 0, SIZE_MAX, 2), CorruptionError);
  EXPECT_THROW(reads_->memory_of(1, 0, 2, SIZE_MAX), CorruptionError);
  EXPECT_THROW(reads_->memory_of(1, 1, 0, 1), CorruptionError);  // before the heap
  end();
  begin(kBytes, {UINT64_MAX - 1, peer_.heap_begin() + size});
  EXPECT_THROW(reads_->memory_of(1, 0, 0, 1), CorruptionError);
  EXPECT_THROW(reads_->memory_of(1, 1, 0, 1), CorruptionError);
}

}  // namespace
}  // namespace mccl::node
