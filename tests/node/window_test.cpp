#include "node/window.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "mccl/error.h"
#include "support/node_process.h"

namespace mccl::node {
namespace {

constexpr std::size_t kCallBytes = std::size_t{16} << 10;
constexpr int kPatienceMs = 20'000;

/// `one_address`: ranks see each other's memory at one address, where a sanitizer can track it.
/// `own_address`: each maps it at its own address, as processes do.
enum class Memory { one_address, own_address };

struct alignas(kLine) Line {
  std::byte bytes[kLine] = {};
};

/// The windows of all ranks of one node.
class Node {
 public:
  Node(int ranks, Memory memory, std::size_t call_bytes = kCallBytes,
       std::size_t line = line_bytes())
      : processes_(static_cast<std::size_t>(ranks)) {
    const std::size_t bytes = window_bytes(call_bytes, line);
    std::vector<Range> ranges;
    for (NodeProcess& process : processes_) {
      ranges.push_back(process.arena().allocate(bytes, static_cast<std::uint32_t>(ranks - 1),
                                                WindowFront::bytes(line_bytes())));
      lines_.emplace_back(bytes / kLine);
    }
    std::vector<RangePlace> places;
    for (const Range& range : ranges) places.push_back(range.place());
    for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
      std::vector<Window::Neighbour> others;
      for (std::size_t other = 0; other < processes_.size(); ++other) {
        if (other == rank) continue;
        const NodeProcess& process = processes_[other];
        if (memory == Memory::own_address) {
          others.push_back(
              {static_cast<int>(other), process.passed().map(places[other]), process.bell()});
        } else {
          others.push_back({static_cast<int>(other), PeerRange(), process.bell(), plain(other)});
        }
      }
      windows_.push_back(
          memory == Memory::own_address
              ? std::make_unique<Window>(ranks, std::move(ranges[rank]), std::move(others),
                                         call_bytes, line)
              : std::make_unique<Window>(ranks, plain(rank), std::move(others), call_bytes, line));
    }
  }

  Window& window(int rank) { return *windows_[static_cast<std::size_t>(rank)]; }
  NodeProcess& process(int rank) { return processes_[static_cast<std::size_t>(rank)]; }

 private:
  std::span<std::byte> plain(std::size_t rank) {
    return {lines_[rank][0].bytes, lines_[rank].size() * kLine};
  }

  std::vector<NodeProcess> processes_;
  std::vector<std::vector<Line>> lines_;
  std::vector<std::unique_ptr<Window>> windows_;
};

std::uint64_t called(std::span<const std::byte, kLabelBytes> label) {
  std::uint64_t call = 0;
  std::memcpy(&call, label.data(), sizeof call);
  return call;
}

void begin(Window& window, std::uint64_t call, std::uint32_t arrivals = 1,
           std::size_t published = 8) {
  window.begin(arrivals, published, call * 0x9e3779b97f4a7c15ULL);
}

/// Opens the call and writes its number into the label. Returns false if it cannot be opened yet.
bool open(Window& window, std::uint64_t call) {
  if (!window.open()) return false;
  std::memcpy(window.label().data(), &call, sizeof call);
  return true;
}

/// Makes a whole call in which nothing is read.
void pass(Window& window, std::uint64_t call) {
  begin(window, call);
  ASSERT_TRUE(open(window, call));
  window.arrive();
  window.end();
}

TEST(Window, CallsDoNotShareALongCacheLine) {
  for (const std::size_t line : {std::size_t{64}, kLongestLine}) {
    EXPECT_EQ((window_bytes(kCallBytes, line) + kLine) % WindowFront::kBlockBytes, 0U);
    Node node(2, Memory::own_address, kCallBytes, line);
    Window &one = node.window(0), &other = node.window(1);
    const std::byte* before = nullptr;
    for (std::uint64_t call = 1; call <= 3 * kDepth; ++call) {
      for (Window* const window : {&one, &other}) {
        begin(*window, call);
        ASSERT_TRUE(open(*window, call));
        std::memcpy(window->own(), &call, sizeof call);
        window->arrive();
      }
      ASSERT_TRUE(other.arrived(0, 1));
      ASSERT_TRUE(other.same_calls(0));
      std::uint64_t read = 0;
      std::memcpy(&read, other.published_by(0), sizeof read);
      EXPECT_EQ(read, call);
      if (call % kDepth > 1) {
        EXPECT_EQ(one.own() - before, static_cast<std::ptrdiff_t>(line));
      }
      before = one.own();
      one.end();
      other.end();
    }
  }
}

TEST(Window, ARankRunsAheadUntilItsPlacesAreFull) {
  Node node(3, Memory::own_address);
  Window &fast = node.window(0), &slow = node.window(1), &other = node.window(2);
  for (std::uint64_t call = 1; call < kDepth; ++call) {
    ASSERT_NO_FATAL_FAILURE(pass(fast, call));
    ASSERT_NO_FATAL_FAILURE(pass(other, call));
  }
  begin(fast, kDepth);
  EXPECT_FALSE(fast.open()) << "the slow one has not begun the first call, whose head comes next";
  EXPECT_EQ(fast.late(), 1);
  ASSERT_NO_FATAL_FAILURE(pass(slow, 1));
  EXPECT_TRUE(fast.open());
  EXPECT_EQ(fast.strayed(), -1);
}

TEST(BlockRow, ConsecutiveCallsUseDifferentPlaces) {
  constexpr std::size_t kRow = 32 * BlockRow::kBlockBytes;
  std::mt19937 random(7);
  BlockRow row(kRow);
  std::vector<std::uint64_t> owner(kRow / BlockRow::kBlockBytes, 0);
  for (std::uint64_t call = 1; call < 20000; ++call) {
    const std::size_t bytes = 1 + random() % (random() % 2 == 0 ? kRow / 2 : kRow / 16);
    const BlockRow::Place place = row.take(bytes, call);
    ASSERT_LE(place.offset + bytes, kRow);
    ASSERT_LT(place.last_use + 1, std::max<std::uint64_t>(call, 2)) << bytes << " bytes";
    const std::size_t first = place.offset / BlockRow::kBlockBytes;
    const std::size_t last = (place.offset + bytes - 1) / BlockRow::kBlockBytes;
    for (std::size_t block = first; block <= last; ++block) {
      ASSERT_LE(owner[block], place.last_use);
      owner[block] = call;
    }
  }
}

TEST(BlockRow, SmallCallsWrapAround) {
  BlockRow row(8 * BlockRow::kBlockBytes);
  for (std::uint64_t call = 1; call <= 8; ++call) EXPECT_EQ(row.take(100, call).last_use, 0u);
  EXPECT_EQ(row.take(100, 9).last_use, 1u);
}

TEST(Window, ReusesAPlaceAfterAllRanksHaveReadIt) {
  Node node(3, Memory::own_address);
  Window &fast = node.window(0), &slow = node.window(1), &other = node.window(2);
  const auto pass_large = [](Window& window, std::uint64_t call) {
    begin(window, call, 1, kCallBytes);
    ASSERT_TRUE(window.open());
    std::memset(window.own(), static_cast<int>(call), kCallBytes);
    window.arrive();
    window.end();
  };
  for (const std::uint64_t call : {1, 2}) {
    ASSERT_NO_FATAL_FAILURE(pass_large(fast, call));
    ASSERT_NO_FATAL_FAILURE(pass_large(other, call));
  }
  begin(fast, 3, 1, kCallBytes);
  EXPECT_FALSE(fast.open()) << "nobody has read what was published for the first";
  EXPECT_EQ(fast.late(), 1);
  begin(slow, 1, 1, kCallBytes);
  ASSERT_TRUE(slow.arrived(0, 1));
  EXPECT_EQ(slow.published_by(0)[0], std::byte{1});
  ASSERT_TRUE(slow.open());
  slow.arrive();
  slow.end();
  EXPECT_FALSE(fast.open()) << "that it has read everything shows only in its next call";
  ASSERT_NO_FATAL_FAILURE(pass_large(slow, 2));
  EXPECT_TRUE(fast.open());
  EXPECT_EQ(fast.strayed(), -1);
}

TEST(Window, CountsTheArrivalsOfEachCall) {
  Node node(2, Memory::own_address);
  Window &a = node.window(0), &b = node.window(1);
  for (std::uint64_t call = 1; call < 50; ++call) {
    const std::uint32_t arrivals = 1 + call * 7 % 5;
    begin(a, call, arrivals);
    begin(b, call, arrivals);
    ASSERT_TRUE(a.open());
    ASSERT_TRUE(b.open());
    for (std::uint32_t mark = 1; mark <= arrivals; ++mark) {
      EXPECT_FALSE(b.arrived(0, mark)) << mark << " of call " << call;
      a.arrive();
      EXPECT_TRUE(b.arrived(0, mark));
      b.arrive();
    }
    EXPECT_FALSE(b.arrived(0, arrivals + 1));
    a.end();
    b.end();
  }
}

TEST(Window, PublicationsFitTheirPlaces) {
  Node node(2, Memory::own_address);
  std::uint64_t call = 0;
  for (const std::size_t bytes :
       {std::size_t{1}, CallHead::kInlineBytes, CallHead::kInlineBytes + 1, BlockRow::kBlockBytes,
        BlockRow::kBlockBytes + 1, kCallBytes, std::size_t{0}}) {
    ++call;
    for (int rank : {0, 1}) {
      begin(node.window(rank), call, 1, bytes);
      ASSERT_TRUE(node.window(rank).open());
      std::memset(node.window(rank).own(), rank + 10, bytes);
      node.window(rank).arrive();
    }
    for (int rank : {0, 1}) {
      Window& window = node.window(rank);
      ASSERT_TRUE(window.arrived(1 - rank, 1));
      EXPECT_TRUE(window.same_calls(1 - rank));
      const std::byte* published = window.published_by(1 - rank);
      EXPECT_TRUE(std::all_of(published, published + bytes, [rank](std::byte byte) {
        return byte == static_cast<std::byte>(1 - rank + 10);
      })) << bytes;
      window.end();
    }
  }
}

TEST(Window, NamesARankInAnotherCall) {
  Node node(2, Memory::own_address);
  for (int rank : {0, 1}) {
    const std::uint64_t call = 7 + static_cast<std::uint64_t>(rank);
    begin(node.window(rank), call);
    ASSERT_TRUE(open(node.window(rank), call));
    node.window(rank).arrive();
  }
  for (int rank : {0, 1}) {
    Window& window = node.window(rank);
    ASSERT_TRUE(window.arrived(1 - rank, 1));
    EXPECT_FALSE(window.same_calls(1 - rank));
    const Window::Divergence found = window.divergence_of(1 - rank);
    EXPECT_FALSE(found.is_over);
    EXPECT_EQ(called(found.theirs), rank == 0 ? 8u : 7u);
  }
}

TEST(Window, NamesARankThatWasInAnotherCall) {
  for (std::uint64_t later = 1; later < kDepth - 1; ++later) {
    Node node(3, Memory::own_address);
    for (int rank : {0, 1, 2}) ASSERT_NO_FATAL_FAILURE(pass(node.window(rank), 1));
    for (int rank : {0, 1, 2}) {
      ASSERT_NO_FATAL_FAILURE(pass(node.window(rank), rank == 1 ? 99 : 2));
    }
    for (std::uint64_t call = 3; call < 2 + later; ++call) {
      for (int rank : {0, 1, 2}) ASSERT_NO_FATAL_FAILURE(pass(node.window(rank), call));
    }
    for (int rank : {0, 1, 2}) {
      begin(node.window(rank), 2 + later);
      ASSERT_TRUE(open(node.window(rank), 2 + later));
      node.window(rank).arrive();
    }
    for (int rank : {0, 1, 2}) {
      Window& window = node.window(rank);
      const int other = rank == 1 ? 0 : 1;
      ASSERT_TRUE(window.arrived(other, 1));
      ASSERT_FALSE(window.same_calls(other)) << later;
      const Window::Divergence found = window.divergence_of(other);
      EXPECT_TRUE(found.is_over);
      EXPECT_EQ(called(found.theirs), rank == 1 ? 2u : 99u) << later;
      EXPECT_EQ(called(found.ours), rank == 1 ? 99u : 2u) << later;
      if (rank != 1) {
        EXPECT_TRUE(window.same_calls(2 - rank));
      }
    }
  }
}

TEST(Window, ARankThatNeverReadsLearnsOfAMismatchWhenItsPlacesAreReused) {
  Node node(2, Memory::own_address);
  for (int rank : {0, 1}) ASSERT_NO_FATAL_FAILURE(pass(node.window(rank), 1));
  for (int rank : {0, 1}) ASSERT_NO_FATAL_FAILURE(pass(node.window(rank), rank == 1 ? 99 : 2));
  for (std::uint64_t call = 3; call <= kDepth; ++call) {
    for (int rank : {0, 1}) ASSERT_NO_FATAL_FAILURE(pass(node.window(rank), call));
  }
  for (int rank : {0, 1}) {
    Window& window = node.window(rank);
    begin(window, kDepth + 1);
    for (int look = 0; look < 2; ++look) {
      ASSERT_TRUE(window.open());
      EXPECT_EQ(window.strayed(), 1 - rank);
      const Window::Divergence found = window.divergence_of(1 - rank);
      EXPECT_EQ(called(found.theirs), rank == 1 ? 2u : 99u);
      EXPECT_FALSE(window.is_open()) << "whoever looks again must see it again";
    }
  }
}

TEST(Window, ANeighboursMemoryThatIsTooSmallIsRefused) {
  NodeProcess own, other;
  const Range theirs = other.arena().allocate(window_bytes(kCallBytes) - page_bytes(), 1);
  std::vector<Window::Neighbour> neighbours;
  neighbours.push_back({5, other.passed().map(theirs.place()), other.bell()});
  try {
    const Window window(6, own.arena().allocate(window_bytes(kCallBytes), 1), std::move(neighbours),
                        kCallBytes);
    FAIL() << "it was taken";
  } catch (const CorruptionError& error) {
    EXPECT_NE(std::string(error.what()).find("rank 5"), std::string::npos) << error.what();
  }
}

/// How a rank waits.
enum class Waiting { yields, sleeps };

struct Traffic {
  const char* name;
  int ranks;
  Memory memory;
  Waiting waiting;
  std::uint64_t calls;
};

void PrintTo(const Traffic& traffic, std::ostream* stream) { *stream << traffic.name; }

/// The actions of a call, equal on all ranks.
struct Shape {
  enum Kind { everyone_reads_everyone, everyone_reads_the_root, some_read_some };
  Kind kind;
  int root;
  std::uint32_t arrivals;
  std::size_t words;  // 8 bytes each, published before each arrival

  Shape(std::mt19937& random, int ranks) {
    kind = static_cast<Kind>(random() % 3);
    root = static_cast<int>(random() % static_cast<unsigned>(ranks));
    arrivals = 1 + random() % 4;
    const std::size_t most = kCallBytes / 8 / arrivals;
    words = random() % 2 == 0 ? CallHead::kInlineBytes / 8 / arrivals : 1 + random() % most;
  }
};

class WindowTraffic : public ::testing::TestWithParam<Traffic> {
 protected:
  static std::uint64_t word(std::uint64_t call, int rank, std::uint32_t arrival, std::size_t i) {
    return call << 32 | static_cast<std::uint64_t>(rank) << 24 | arrival << 16 | (i & 0xffff);
  }

  void fail(const std::string& what) {
    if (!failed_.exchange(true)) ADD_FAILURE() << what;
  }

  /// Waits until ready() returns true. Returns false if a rank has failed.
  template <typename Ready>
  bool until(int rank, Ready ready) {
    NodeProcess& process = node_->process(rank);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
    while (!ready()) {
      if (failed_) return false;
      if (GetParam().waiting == Waiting::yields) {
        std::this_thread::yield();
        if (std::chrono::steady_clock::now() > limit) fail("a rank waits in vain");
        continue;
      }
      process.fall_asleep();
      if (ready()) {
        process.wake_up();
        return true;
      }
      if (!process.sleep(kPatienceMs)) fail("nobody rang for a rank that sleeps");
    }
    return true;
  }

  bool read(int rank, int from, std::uint64_t call, const Shape& shape, std::uint32_t arrival,
            unsigned delay) {
    Window& window = node_->window(rank);
    if (!until(rank, [&] { return window.arrived(from, arrival + 1); })) return false;
    if (!window.same_calls(from)) {
      fail("a neighbour seems to be in another call");
    }
    for (unsigned i = 0; i < delay; ++i) std::this_thread::yield();
    const std::byte* published = window.published_by(from) + arrival * shape.words * 8;
    for (std::size_t i = 0; i < shape.words; ++i) {
      std::uint64_t found = 0;
      std::memcpy(&found, published + 8 * i, 8);
      if (found == word(call, from, arrival, i)) continue;
      fail("rank " + std::to_string(rank) + " reads what rank " + std::to_string(from) +
           " published for call " + std::to_string(found >> 32) + " in call " +
           std::to_string(call));
      return false;
    }
    return true;
  }

  bool run_call(int rank, std::uint64_t call, const Shape& shape, std::mt19937& random) {
    Window& window = node_->window(rank);
    const bool roots = shape.kind == Shape::everyone_reads_the_root;
    begin(window, call, shape.arrivals, shape.arrivals * shape.words * 8);
    for (std::uint32_t arrival = 0; arrival < shape.arrivals; ++arrival) {
      if (!until(rank, [&] { return window.open(); })) return false;
      if (window.strayed() >= 0) fail("a neighbour seems to have been in another call");
      if (!roots || rank == shape.root) {
        for (std::size_t i = 0; i < shape.words; ++i) {
          const std::uint64_t value = word(call, rank, arrival, i);
          std::memcpy(window.own() + (arrival * shape.words + i) * 8, &value, 8);
        }
      }
      window.arrive();
      const unsigned delay = random() % 16 == 0 ? random() % 100 : 0;
      for (int from = 0; from < GetParam().ranks; ++from) {
        const bool reads = shape.kind == Shape::some_read_some ? random() % 2 == 0
                           : roots                             ? from == shape.root
                                                               : true;
        if (from == rank || !reads) continue;
        if (!read(rank, from, call, shape, arrival, delay)) return false;
      }
    }
    window.end();
    return true;
  }

  void run_rank(int rank) {
    std::mt19937 shapes(1);
    std::mt19937 random(100 + static_cast<unsigned>(rank));
    for (std::uint64_t call = 1; call <= GetParam().calls; ++call) {
      const Shape shape(shapes, GetParam().ranks);
      if (!run_call(rank, call, shape, random)) return;
    }
  }

  std::unique_ptr<Node> node_;
  std::atomic<bool> failed_{false};
};

TEST_P(WindowTraffic, EveryRankReadsThePublicationOfItsCall) {
  node_ = std::make_unique<Node>(GetParam().ranks, GetParam().memory);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < GetParam().ranks; ++rank) {
    threads.emplace_back([this, rank] { run_rank(rank); });
  }
  for (std::thread& thread : threads) thread.join();
}

INSTANTIATE_TEST_SUITE_P(
    Shm, WindowTraffic,
    ::testing::Values(Traffic{"two", 2, Memory::own_address, Waiting::yields, 3000},
                      Traffic{"two_watched", 2, Memory::one_address, Waiting::yields, 2000},
                      Traffic{"five_watched", 5, Memory::one_address, Waiting::yields, 800},
                      Traffic{"two_asleep", 2, Memory::own_address, Waiting::sleeps, 3000},
                      Traffic{"four_asleep", 4, Memory::one_address, Waiting::sleeps, 1000}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace mccl::node
