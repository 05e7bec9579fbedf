#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <random>
#include <thread>
#include <vector>

#include "mccl/error.h"
#include "transport/shm/link.h"

namespace mccl::transport::shm {
namespace {

using namespace node;

using Bytes = std::vector<std::byte>;

/// A ring with its own memory.
struct Ring {
  explicit Ring(std::size_t capacity = page_bytes())
      : file(make_memory_file(capacity)),
        bytes(Mapping::twice(file, 0, capacity)),
        writer(state, bytes.data(), capacity),
        reader(state, bytes.data(), capacity) {}

  RingState state;
  Descriptor file;
  Mapping bytes;
  RingWriter writer;
  RingReader reader;
};

Bytes pattern(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  Bytes bytes(n);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

TEST(Ring, PassesBytesInOrder) {
  for (unsigned seed = 0; seed < 8; ++seed) {
    Ring ring;
    const std::size_t capacity = page_bytes();
    std::mt19937 random(seed);
    std::deque<std::byte> model;
    for (int step = 0; step < 3000; ++step) {
      if (random() % 2 == 0) {
        const Bytes first = pattern(random() % 1500, random());
        const Bytes second = pattern(random() % 1500, random());
        const std::size_t room = capacity - model.size();
        const std::size_t n = ring.writer.write(first, second);
        ASSERT_EQ(n, std::min(room, first.size() + second.size()));
        model.insert(model.end(), first.begin(),
                     first.begin() + static_cast<std::ptrdiff_t>(std::min(n, first.size())));
        if (n > first.size()) {
          model.insert(model.end(), second.begin(),
                       second.begin() + static_cast<std::ptrdiff_t>(n - first.size()));
        }
      } else {
        const auto seen = ring.reader.peek();
        ASSERT_TRUE(std::equal(seen.begin(), seen.end(), model.begin(), model.end()));
        ASSERT_EQ(ring.reader.seen(), seen.size());
        const std::size_t n = seen.empty() ? 0 : random() % (seen.size() + 1);
        ring.reader.consume(n);
        ASSERT_EQ(ring.reader.seen(), seen.size() - n);
        model.erase(model.begin(), model.begin() + static_cast<std::ptrdiff_t>(n));
      }
    }
  }
}

TEST(Ring, HoldsExactlyItsCapacity) {
  Ring ring;
  const std::size_t capacity = page_bytes();
  const Bytes block = pattern(3 * capacity, 1);
  EXPECT_EQ(ring.writer.write(block, {}), capacity);
  EXPECT_EQ(ring.writer.write(block, {}), 0u);
  EXPECT_EQ(ring.reader.peek().size(), capacity);
  ring.reader.consume(1);
  EXPECT_EQ(ring.writer.write(std::span(block).subspan(capacity, 1), block), 1u);
  const auto seen = ring.reader.peek();
  ASSERT_EQ(seen.size(), capacity);
  EXPECT_EQ(0, std::memcmp(seen.data(), block.data() + 1, capacity)) << "cut where it wraps around";
}

TEST(Ring, TwoThreadsPassEverythingInOrder) {
  Ring ring;
  constexpr std::size_t kBytes = std::size_t{4} << 20;
  const Bytes sent = pattern(kBytes, 2);
  std::thread writer([&] {
    std::mt19937 random(3);
    for (std::size_t at = 0; at < kBytes;) {
      const std::size_t cut = std::min<std::size_t>(1 + random() % 6000, kBytes - at);
      const std::size_t first = random() % (cut + 1);
      const std::size_t n = ring.writer.write(std::span(sent).subspan(at, first),
                                              std::span(sent).subspan(at + first, cut - first));
      at += n;
      if (n == 0 || random() % 8 == 0) std::this_thread::yield();
    }
    ring.writer.leave();
  });
  std::mt19937 random(4);
  Bytes got;
  got.reserve(kBytes);
  for (;;) {
    const bool last = ring.reader.writer_left();
    const auto seen = ring.reader.peek();
    if (seen.empty() && last) break;
    const std::size_t n = std::min<std::size_t>(seen.size(), 1 + random() % 5000);
    got.insert(got.end(), seen.begin(), seen.begin() + static_cast<std::ptrdiff_t>(n));
    ring.reader.consume(n);
    if (n == 0 || random() % 8 == 0) std::this_thread::yield();
  }
  writer.join();
  EXPECT_TRUE(got == sent);
}

TEST(Ring, RefusesImpossibleCounts) {
  const Bytes block = pattern(page_bytes() + 1, 5);
  Ring reads;
  reads.state.written = page_bytes() + 1;
  EXPECT_THROW(reads.reader.peek(), CorruptionError);
  Ring backwards;
  backwards.writer.write(std::span(block).first(10), {});
  backwards.reader.peek();
  backwards.reader.consume(10);
  backwards.state.written = 9;
  EXPECT_THROW(backwards.reader.peek(), CorruptionError);
  Ring ahead;
  ahead.state.taken = 1;
  EXPECT_THROW(ahead.writer.write(block, {}), CorruptionError);
  Ring behind;
  behind.writer.write(std::span(block).first(100), {});
  behind.state.taken = ~std::uint64_t{0} - page_bytes();
  EXPECT_THROW(behind.writer.write(block, {}), CorruptionError);
}

TEST(Ring, TheOtherSideSeesAnEndLeave) {
  Ring ring;
  EXPECT_FALSE(ring.reader.writer_left());
  EXPECT_FALSE(ring.writer.reader_left());
  ring.writer.leave();
  EXPECT_TRUE(ring.reader.writer_left());
  EXPECT_FALSE(ring.writer.reader_left());
  ring.reader.leave();
  EXPECT_TRUE(ring.writer.reader_left());
}

}  // namespace
}  // namespace mccl::transport::shm
