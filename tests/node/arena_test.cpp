#include "node/arena.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>

#include "mccl/error.h"
#include "support/node_process.h"

namespace mccl::node {
namespace {

constexpr std::size_t kCapacity = std::size_t{1} << 20;

TEST(Arena, SharesBytesBetweenTwoProcesses) {
  NodeProcess process(kCapacity);
  const Range own = process.arena().allocate(100'000, 1);
  ASSERT_TRUE(own);
  ASSERT_GE(own.memory().size(), 100'000u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(own.memory().data()) % kLine, 0u);
  const PeerRange theirs = process.passed().map(own.place());
  ASSERT_EQ(theirs.memory().size(), own.memory().size());
  EXPECT_NE(theirs.memory().data(), own.memory().data());
  std::memset(own.memory().data(), 0x5a, own.memory().size());
  EXPECT_TRUE(std::all_of(theirs.memory().begin(), theirs.memory().end(),
                          [](std::byte byte) { return byte == std::byte{0x5a}; }));
  theirs.memory()[7] = std::byte{1};
  EXPECT_EQ(own.memory()[7], std::byte{1});
}

TEST(Arena, ReusesARangeOnlyAfterAllReadersReleaseIt) {
  NodeProcess process(kCapacity);
  Arena& arena = process.arena();
  Range range = arena.allocate(10'000, 2);
  const RangePlace place = range.place();
  std::memset(range.memory().data(), 0xff, range.memory().size());
  PeerRange first = process.passed().map(place);
  PeerRange second = process.passed().map(place);
  range = Range();
  EXPECT_NE(arena.allocate(10'000, 0).place().offset, place.offset) << "both readers hold it";
  first = PeerRange();
  EXPECT_NE(arena.allocate(10'000, 0).place().offset, place.offset) << "one reader holds it";
  EXPECT_EQ(second.memory()[5], std::byte{0xff}) << "it was written under a reader's hands";
  PeerRange moved = std::move(second);
  second = PeerRange();
  EXPECT_NE(arena.allocate(10'000, 0).place().offset, place.offset) << "a reader moved it";
  moved = PeerRange();
  const Range again = arena.allocate(10'000, 1, 5000);
  EXPECT_EQ(again.place().offset, place.offset);
  const auto cleared = again.memory().first(5000);
  EXPECT_TRUE(std::all_of(cleared.begin(), cleared.end(), [](std::byte byte) {
    return byte == std::byte{0};
  })) << "the memory is not zero";
}

TEST(Arena, ReusesFreedRangesOfEqualSizeAndReturnsThemToTheSystemWhenShortOfSpace) {
  NodeProcess process(kCapacity);
  Arena& arena = process.arena();
  std::vector<Range> ranges;
  for (Range range = arena.allocate(100'000, 0); range; range = arena.allocate(100'000, 0)) {
    ranges.push_back(std::move(range));
  }
  const RangePlace last = ranges.back().place();
  ranges.clear();
  EXPECT_TRUE(arena.allocate(700'000, 0)) << "spares were not given up for it";
  arena.collect();
  EXPECT_EQ(arena.taken(), 0u);
  const Range first = arena.allocate(100'000, 0);
  const RangePlace place = first.place();
  { const Range second = arena.allocate(100'000, 0); }
  const Range third = arena.allocate(100'000, 0);
  EXPECT_NE(third.place().offset, place.offset);
  EXPECT_LT(place.offset, last.offset);
}

TEST(Arena, ARangeInUseIsNeverGivenTwice) {
  NodeProcess process(kCapacity);
  std::vector<Range> ranges;
  for (std::size_t i = 0; i < 20; ++i) {
    ranges.push_back(process.arena().allocate(3000 * i, 0));
    ASSERT_TRUE(ranges.back());
    std::memset(ranges.back().memory().data(), static_cast<int>(i + 1),
                ranges.back().memory().size());
  }
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const auto memory = ranges[i].memory();
    EXPECT_TRUE(std::all_of(memory.begin(), memory.end(), [i](std::byte byte) {
      return byte == static_cast<std::byte>(i + 1);
    })) << i;
  }
}

TEST(Arena, ReturnsAnEmptyRangeWhenFull) {
  NodeProcess process(kCapacity);
  Arena& arena = process.arena();
  EXPECT_FALSE(arena.allocate(kCapacity + 1, 0));
  std::vector<Range> ranges;
  for (;;) {
    Range range = arena.allocate(100'000, 0);
    if (!range) break;
    std::memset(range.memory().data(), 1, range.memory().size());  // the memory exists
    ranges.push_back(std::move(range));
    ASSERT_LT(ranges.size(), 11u);
  }
  EXPECT_EQ(ranges.size(), 10u);
  EXPECT_LE(arena.taken(), kCapacity);
  const std::size_t taken = arena.taken();
  ranges.pop_back();
  EXPECT_TRUE(arena.allocate(100'000, 0));
  EXPECT_EQ(arena.taken(), taken);
}

TEST(Arena, OutlivesItsOwnerWhileARangeIsInUse) {
  std::shared_ptr<Arena> arena = Arena::make(kCapacity);
  const Range range = arena->allocate(5000, 0);
  arena.reset();
  std::memset(range.memory().data(), 1, range.memory().size());
}

TEST(Arena, RefusesPlacesOutsideTheArena) {
  NodeProcess process(kCapacity);
  const std::uint64_t page = page_bytes();
  const std::uint64_t size = kCapacity + page;
  const std::uint64_t huge = std::numeric_limits<std::uint64_t>::max() - page + 1;
  for (const RangePlace& place :
       {RangePlace{page, 0},                                        // empty
        RangePlace{0, page},                                        // the arena's own page
        RangePlace{page + 1, page},                                 // unaligned offset
        RangePlace{page, page + 1},                                 // unaligned size
        RangePlace{size, page},                                     // begins at the end
        RangePlace{page, size},                                     // extends past the end
        RangePlace{size - page, 2 * page}, RangePlace{huge, page},  // sums that overflow
        RangePlace{page, huge}, RangePlace{huge, 2 * page}}) {
    EXPECT_THROW(process.passed().map(place), CorruptionError)
        << place.offset << " " << place.bytes;
  }
}

Descriptor file_of(std::size_t bytes, int seals) {
  Descriptor file(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(file.get(), static_cast<off_t>(bytes)), 0);
  if (seals != 0) {
    EXPECT_EQ(::fcntl(file.get(), F_ADD_SEALS, seals), 0);
  }
  return file;
}

TEST(PeerArena, RefusesAFileThatIsNoArena) {
  const NodeProcess process(kCapacity);
  EXPECT_THROW(PeerArena(file_of(kCapacity, 0)), Error) << "it could shrink";
  EXPECT_THROW(PeerArena(file_of(kCapacity, F_SEAL_GROW)), Error) << "it could shrink";
  EXPECT_THROW(PeerArena(file_of(100, F_SEAL_SHRINK)), Error) << "it is too small";
  EXPECT_THROW(PeerArena(file_of(0, F_SEAL_SHRINK)), Error) << "it is empty";
  EXPECT_THROW(PeerArena(file_of(kCapacity, F_SEAL_SHRINK)), Error) << "it has no header";
  EXPECT_THROW(PeerArena(Descriptor(::open("/dev/null", O_RDWR | O_CLOEXEC))), Error);
  EXPECT_THROW(PeerArena{Descriptor()}, Error);
  const std::string read_only =
      "/proc/self/fd/" + std::to_string(const_cast<NodeProcess&>(process).arena().descriptor());
  EXPECT_THROW(PeerArena(Descriptor(::open(read_only.c_str(), O_RDONLY | O_CLOEXEC))), Error);
}

TEST(MemoryFile, CannotBeResized) {
  NodeProcess process(kCapacity);
  EXPECT_NE(::ftruncate(process.arena().descriptor(), 0), 0);
  EXPECT_NE(::ftruncate(process.arena().descriptor(), 100 << 20), 0);
}

/// A write past the limit would raise a signal.
TEST(MemoryFile, TheLimitOfFileSizesIsAnError) {
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit limit = before;
  limit.rlim_cur = kCapacity / 2;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  EXPECT_THROW(Arena::make(kCapacity), Error);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_NE(Arena::make(kCapacity), nullptr);
}

/// The kernel marks open files without a name as deleted.
TEST(MemoryFile, LeavesNoNameBehind) {
  NodeProcess process(kCapacity);
  const std::string link = fmt::format("/proc/self/fd/{}", process.arena().descriptor());
  EXPECT_TRUE(std::filesystem::read_symlink(link).string().ends_with(" (deleted)"));
}

}  // namespace
}  // namespace mccl::node
