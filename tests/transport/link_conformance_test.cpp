#include "transport/link_conformance.h"

#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

namespace mccl::transport {
namespace {

TEST_P(LinkConformance, ReadingWithoutDataIsNoError) {
  Bytes destination(10);
  EXPECT_EQ(a_->read(destination), 0u);
  EXPECT_TRUE(a_->peek(1).empty());
  EXPECT_EQ(a_->peek(1).size(), 0u);
  EXPECT_FALSE(a_->description().empty());
  EXPECT_GE(a_->peek_capacity(), 4096u);
}

TEST_P(LinkConformance, ZeroBytesAreANoOp) {
  EXPECT_EQ(a_->write({}), 0u);
  EXPECT_EQ(a_->write({}, {}), 0u);
  EXPECT_EQ(a_->read({}), 0u);
  a_->consume(0);
  const Bytes sent = pattern(5, 1);
  write_all(*a_, sent);
  const auto seen = peek_until(*b_, 5);
  EXPECT_EQ(Bytes(seen.begin(), seen.end()), sent);
  EXPECT_EQ(b_->read({}), 0u);
  EXPECT_EQ(b_->peek(1).size(), 5u);
}

TEST_P(LinkConformance, TwoPiecesFollowEachOther) {
  const Bytes first = pattern(100, 1);
  const Bytes second = pattern(200, 2);
  EXPECT_EQ(a_->write(first, second), 300u);
  EXPECT_EQ(a_->write({}, second), 200u);
  EXPECT_EQ(a_->write(first, {}), 100u);
  Bytes expected = first;
  expected.insert(expected.end(), second.begin(), second.end());
  expected.insert(expected.end(), second.begin(), second.end());
  expected.insert(expected.end(), first.begin(), first.end());
  Bytes got(600);
  ASSERT_NO_FATAL_FAILURE(read_all(*b_, got));
  EXPECT_EQ(got, expected);
}

TEST_P(LinkConformance, PeekWaitsForEnough) {
  const Bytes sent = pattern(1000, 3);
  write_all(*a_, std::span(sent).first(400));
  // All 400 bytes that were written can be seen, but not 401.
  EXPECT_GE(peek_until(*b_, 400).size(), 400u);
  EXPECT_TRUE(b_->peek(401).empty());
  EXPECT_EQ(b_->peek(1).size(), 400u);
  write_all(*a_, std::span(sent).subspan(400));
  const auto seen = peek_until(*b_, 1000);
  EXPECT_EQ(Bytes(seen.begin(), seen.end()), sent);
}

TEST_P(LinkConformance, PeekTakesNothing) {
  const Bytes sent = pattern(64, 4);
  write_all(*a_, sent);
  for (int i = 0; i < 3; ++i) {
    const auto seen = peek_until(*b_, 64);
    EXPECT_EQ(Bytes(seen.begin(), seen.end()), sent);
  }
}

TEST_P(LinkConformance, ConsumeTakesParts) {
  const Bytes sent = pattern(1000, 5);
  write_all(*a_, sent);
  Bytes got;
  for (std::size_t n = 1; got.size() < sent.size(); n += 7) {
    const std::size_t part = std::min(n, sent.size() - got.size());
    const auto seen = peek_until(*b_, part);
    ASSERT_GE(seen.size(), part);
    got.insert(got.end(), seen.begin(), seen.begin() + static_cast<std::ptrdiff_t>(part));
    b_->consume(part);
  }
  EXPECT_EQ(got, sent);
  EXPECT_EQ(b_->peek(1).size(), 0u);
}

TEST_P(LinkConformance, PeekReachesItsCapacity) {
  const std::size_t capacity = b_->peek_capacity();
  const Bytes sent = pattern(2 * capacity + 77, 6);
  std::size_t written = 0;
  // The odd offset makes the link move kept bytes to reach its full peek capacity.
  for (std::size_t skipped = 0; skipped < 77;) {
    written += a_->write(std::span(sent).subspan(written));
    Bytes head(77 - skipped);
    skipped += b_->read(head);
  }
  for (int round = 0; round < 2; ++round) {
    std::span<const std::byte> seen;
    const Clock::time_point limit = Clock::now() + std::chrono::seconds(60);
    while ((seen = b_->peek(capacity)).empty()) {
      ASSERT_LT(Clock::now(), limit) << "peek(peek_capacity()) never succeeds";
      written += a_->write(std::span(sent).subspan(written));
    }
    ASSERT_GE(seen.size(), capacity);
    EXPECT_EQ(0, std::memcmp(seen.data(), sent.data() + 77 + round * capacity, capacity));
    b_->consume(capacity);
  }
}

TEST_P(LinkConformance, MixesReadAndPeekAtOddPlaces) {
  std::mt19937 random(7);
  const Bytes sent = pattern(1 << 20, 8);
  Bytes got(sent.size() + 16);
  std::size_t written = 0, arrived = 0;
  while (arrived < sent.size()) {
    const std::size_t piece = std::min<std::size_t>(1 + random() % 40'000, sent.size() - written);
    written += a_->write(std::span(sent).subspan(written, piece));
    const std::size_t rest = written - arrived;
    if (random() % 2 == 0) {
      const std::size_t wanted = std::min<std::size_t>(1 + random() % 30'000, rest);
      // The offset of three aligns source and destination differently.
      arrived += b_->read(std::span(got).subspan(3 + arrived, wanted));
    } else {
      const auto seen =
          b_->peek(std::min<std::size_t>(1 + random() % 5'000, std::max<std::size_t>(rest, 1)));
      if (seen.empty()) continue;
      const std::size_t taken = 1 + random() % seen.size();
      std::memcpy(got.data() + 3 + arrived, seen.data(), taken);
      b_->consume(taken);
      arrived += taken;
    }
  }
  EXPECT_EQ(0, std::memcmp(got.data() + 3, sent.data(), sent.size()));
}

TEST_P(LinkConformance, BothWaysAtOnceInRandomPieces) {
  std::mt19937 random(9);
  const Bytes from_a = pattern(3 << 20, 10), from_b = pattern(2 << 20, 11);
  Bytes at_a(from_b.size()), at_b(from_a.size());
  std::size_t sent_a = 0, sent_b = 0, got_a = 0, got_b = 0;
  const auto step = [&](Link& link, const Bytes& out, std::size_t& sent, Bytes& in,
                        std::size_t& got) {
    const std::size_t cut = std::min<std::size_t>(random() % 70'000, out.size() - sent);
    const std::size_t first = cut == 0 ? 0 : random() % cut;
    sent += link.write(std::span(out).subspan(sent, first),
                       std::span(out).subspan(sent + first, cut - first));
    got += link.read(
        std::span(in).subspan(got, std::min<std::size_t>(random() % 90'000, in.size() - got)));
  };
  while (got_a < at_a.size() || got_b < at_b.size()) {
    step(*a_, from_a, sent_a, at_a, got_a);
    step(*b_, from_b, sent_b, at_b, got_b);
  }
  EXPECT_TRUE(at_a == from_b);
  EXPECT_TRUE(at_b == from_a);
}

TEST_P(LinkConformance, PushesBackAndResumes) {
  const Bytes block = pattern(1 << 20, 12);
  std::size_t written = 0;
  const std::size_t limit = std::size_t{1} << 30;
  // Writes until the link accepts nothing.
  for (std::size_t n = 1; n > 0 && written < limit;) {
    n = a_->write(std::span(block).subspan(written % block.size()));
    written += n;
  }
  ASSERT_LT(written, limit) << "write() accepts bytes without limit";
  Bytes got(block.size());
  std::size_t arrived = 0;
  while (arrived < written) {
    const std::size_t wanted = std::min(block.size() - arrived % block.size(), written - arrived);
    const std::span<std::byte> piece = std::span(got).first(wanted);
    ASSERT_NO_FATAL_FAILURE(read_all(*b_, piece));
    ASSERT_EQ(0, std::memcmp(piece.data(), block.data() + arrived % block.size(), wanted));
    arrived += wanted;
  }
  ASSERT_NO_FATAL_FAILURE(until(*a_, POLLOUT, [&] { return a_->write(block) > 0; }));
}

TEST_P(LinkConformance, MovesSixtyFourMebibytes) {
  // Fills whole words, because filling single bytes is slow in tests compiled without optimisation.
  std::vector<std::uint64_t> words((std::size_t{64} << 20) / sizeof(std::uint64_t));
  std::iota(words.begin(), words.end(), 13);
  const std::span<const std::byte> sent = std::as_bytes(std::span(words));
  Bytes got(sent.size());
  std::size_t written = 0, arrived = 0;
  while (arrived < sent.size()) {
    const std::size_t out = a_->write(sent.subspan(written));
    const std::size_t in = b_->read(std::span(got).subspan(arrived));
    written += out;
    arrived += in;
    if (out + in > 0) continue;
    ASSERT_NO_FATAL_FAILURE(until(*b_, POLLIN, [&] {
      const std::size_t n = b_->read(std::span(got).subspan(arrived));
      arrived += n;
      return n > 0;
    }));
  }
  EXPECT_EQ(std::memcmp(got.data(), sent.data(), sent.size()), 0);
}

TEST_P(LinkConformance, WakesTheReader) {
  Bytes got(1);
  waits_b_->prepare();
  EXPECT_EQ(b_->read(got), 0u);
  EXPECT_FALSE(waits_b_->wait(*b_, POLLIN, 0)) << "readable before anything was sent";
  waits_b_->prepare();
  write_all(*a_, pattern(1, 14));
  EXPECT_TRUE(waits_b_->wait(*b_, POLLIN, kPatienceMs));
  ASSERT_NO_FATAL_FAILURE(read_all(*b_, got));
  EXPECT_EQ(got, pattern(1, 14));
}

TEST_P(LinkConformance, WakesTheWriterWhenThereIsRoom) {
  const Bytes block = pattern(1 << 20, 18);
  std::size_t written = 0;
  for (std::size_t n = 1; n > 0; written += n) n = a_->write(block);
  waits_a_->prepare();
  written += a_->write(block);
  Bytes got(written);
  ASSERT_NO_FATAL_FAILURE(read_all(*b_, got));
  EXPECT_TRUE(waits_a_->wait(*a_, POLLOUT, kPatienceMs));
  EXPECT_GT(a_->write(block), 0u);
}

/// Each end has its own thread, which sleeps whenever it can neither read nor write. A missed
/// wake-up fails the test.
TEST_P(LinkConformance, TwoThreadsWakeEachOther) {
  if (GetParam().needs_one_thread) GTEST_SKIP() << "both ends share an outbox";
  constexpr std::size_t kBytes = std::size_t{8} << 20;
  const auto stream = [this](Link& from, Link& to, unsigned seed) {
    const Bytes sent = pattern(kBytes, seed);
    Bytes got(kBytes);
    std::thread reader([&] {
      std::mt19937 random(seed);
      for (std::size_t at = 0; at < kBytes && !HasFatalFailure();) {
        const std::size_t n = std::min<std::size_t>(1 + random() % 50'000, kBytes - at);
        read_all(to, std::span(got).subspan(at, n));
        at += n;
      }
    });
    std::mt19937 random(seed + 1);
    for (std::size_t at = 0; at < kBytes && !HasFatalFailure();) {
      const std::size_t n = std::min<std::size_t>(1 + random() % 400'000, kBytes - at);
      write_all(from, std::span(sent).subspan(at, n));
      at += n;
    }
    reader.join();
    EXPECT_TRUE(got == sent);
  };
  stream(*a_, *b_, 19);
  stream(*b_, *a_, 20);
}

TEST_P(LinkConformance, TwoThreadsCallAndAnswer) {
  if (GetParam().needs_one_thread) GTEST_SKIP() << "both ends share an outbox";
  constexpr int kRounds = 20'000;
  std::thread answers([this] {
    Bytes byte(1);
    for (int i = 0; i < kRounds && !HasFatalFailure(); ++i) {
      read_all(*b_, byte);
      write_all(*b_, byte);
    }
  });
  for (int i = 0; i < kRounds && !HasFatalFailure(); ++i) {
    const Bytes asked(1, static_cast<std::byte>(i));
    Bytes answer(1);
    write_all(*a_, asked);
    read_all(*a_, answer);
    ASSERT_EQ(answer, asked);
  }
  answers.join();
}

TEST_P(LinkConformance, DataArriveBeforeTheClose) {
  const Bytes sent = pattern(100'000, 15);
  std::size_t written = 0;
  while (written < sent.size()) {
    const std::size_t n = a_->write(std::span(sent).subspan(written));
    if (n == 0) break;
    written += n;
  }
  a_.reset();
  const auto head = peek_until(*b_, 100);
  ASSERT_GE(head.size(), 100u);
  EXPECT_EQ(0, std::memcmp(head.data(), sent.data(), 100));
  Bytes got = drain(*b_);
  ASSERT_EQ(got.size(), written);
  EXPECT_EQ(0, std::memcmp(got.data(), sent.data(), written));
  EXPECT_THROW(b_->peek(1), LinkClosed);
  Bytes more(1);
  EXPECT_THROW(b_->read(more), LinkClosed);
}

TEST_P(LinkConformance, DeliversAPartialMessageBeforeTheClose) {
  const Bytes sent = pattern(40, 16);
  write_all(*a_, sent);
  a_.reset();
  // The close may be seen with the bytes or after them. More than 40 bytes must never arrive.
  try {
    ASSERT_NO_FATAL_FAILURE(until(*b_, POLLIN, [&] { return !b_->peek(41).empty(); }));
    FAIL() << "41 bytes arrived, but only 40 were sent";
  } catch (const LinkClosed&) {
  }
  const auto seen = b_->peek(40);
  EXPECT_EQ(Bytes(seen.begin(), seen.end()), sent);
  b_->consume(40);
  EXPECT_THROW(b_->peek(1), LinkClosed);
}

/// The departing end has written more than the peer's host has room for. It also has unread bytes,
/// and receives more of them.
TEST_P(LinkConformance, ADepartingEndDeliversAllItsBytes) {
  write_all(*b_, pattern(1000, 21));
  const Bytes sent = fill(*a_, 22);
  bool departed = a_->depart();
  Bytes got;
  Bytes piece(8192);
  bool can_write = true;
  const Clock::time_point limit = Clock::now() + std::chrono::seconds(60);
  while (got.size() < sent.size()) {
    ASSERT_LT(Clock::now(), limit) << got.size() << " of " << sent.size() << " bytes have arrived";
    const std::size_t n = b_->read(piece);
    got.insert(got.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(n));
    try {
      if (can_write) b_->write(pattern(10, 23));
    } catch (const LinkClosed&) {
      can_write = false;
    }
    departed = departed || a_->depart();
    if (departed) a_.reset();
  }
  EXPECT_TRUE(got == sent);
  EXPECT_TRUE(!a_ || departs(*a_));
}

TEST_P(LinkConformance, DeliversEarlierBytesAfterAFailedWrite) {
  Bytes sent = pattern(100'000, 24);
  sent.resize(a_->write(sent));
  ASSERT_TRUE(departs(*a_));
  a_.reset();
  const Bytes block = pattern(1 << 16, 25);
  const Clock::time_point limit = Clock::now() + std::chrono::seconds(30);
  const auto write_until_it_fails = [&] {
    while (Clock::now() < limit) b_->write(block);
  };
  EXPECT_THROW(write_until_it_fails(), LinkClosed);
  EXPECT_TRUE(drain(*b_) == sent);
}

TEST_P(LinkConformance, EndsThatDepartTogetherDoNotWaitForEachOther) {
  const Bytes from_a = fill(*a_, 26);
  const Bytes from_b = fill(*b_, 27);
  const Clock::time_point limit = Clock::now() + std::chrono::milliseconds(kPatienceMs);
  bool a_departed = false;
  bool b_departed = false;
  while (!(a_departed && b_departed)) {
    ASSERT_LT(Clock::now(), limit);
    a_departed = a_departed || a_->depart();
    b_departed = b_departed || b_->depart();
  }
}

TEST_P(LinkConformance, WritingToAClosedPeerFails) {
  a_.reset();
  const Bytes block = pattern(1 << 16, 17);
  const Clock::time_point limit = Clock::now() + std::chrono::seconds(30);
  try {
    while (Clock::now() < limit) b_->write(block);
    FAIL() << "write never noticed that the peer is gone";
  } catch (const LinkClosed& closed) {
    EXPECT_NE(std::string(closed.what()).find("lost the connection"), std::string::npos)
        << closed.what();
  }
}

TEST_P(LinkConformance, WakesForTheClose) {
  waits_b_->prepare();
  a_.reset();
  EXPECT_TRUE(waits_b_->wait(*b_, POLLIN, kPatienceMs));
  EXPECT_THROW(b_->peek(1), LinkClosed);
}

TEST_P(LinkConformance, PeekBeyondTheCapacityIsRefused) {
  EXPECT_THROW(a_->peek(a_->peek_capacity() + 1), InvalidArgument);
  EXPECT_THROW(a_->consume(1), InvalidArgument);
}

}  // namespace
}  // namespace mccl::transport
