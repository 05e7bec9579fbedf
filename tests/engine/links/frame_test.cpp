#include "engine/links/frame.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>
#include <vector>

#include "mccl/error.h"

namespace mccl::engine {
namespace {

Frame sample() {
  Frame frame;
  frame.kind = FrameKind::eager;
  frame.call = {Collective::reduce, DType::bf16, ReduceKind::max, 3, 1'000'000'007, 42, -1, 77,
                0x123456789abcdef0};
  frame.message = 5;
  frame.payload_bytes = 4096;
  frame.crc = 0xdeadbeef;
  frame.has_crc = true;
  return frame;
}

/// Replaces the checksum by the correct one, as the writer of the bytes could.
FrameBytes sealed(FrameBytes bytes) {
  const std::uint32_t checksum = checksum_of(bytes);
  std::memcpy(bytes.data() + kFrameBytes - 4, &checksum, 4);
  return bytes;
}

TEST(Frame, SurvivesEncodingAndDecoding) {
  const Frame frame = sample();
  const Frame back = decode(encode(frame), 4096, true);
  EXPECT_EQ(back.kind, frame.kind);
  EXPECT_EQ(back.call.collective, frame.call.collective);
  EXPECT_EQ(back.call.dtype, frame.call.dtype);
  EXPECT_EQ(back.call.kind, frame.call.kind);
  EXPECT_EQ(back.call.root, frame.call.root);
  EXPECT_EQ(back.call.count, frame.call.count);
  EXPECT_EQ(back.call.counts_hash, frame.call.counts_hash);
  EXPECT_EQ(back.call.sequence, frame.call.sequence);
  EXPECT_EQ(back.call.tag, frame.call.tag);
  EXPECT_EQ(back.message, frame.message);
  EXPECT_EQ(back.payload_bytes, frame.payload_bytes);
  EXPECT_EQ(back.crc, frame.crc);
  EXPECT_TRUE(back.has_crc);
}

TEST(Frame, RefusesInvalidFrames) {
  const FrameBytes good = encode(sample());
  EXPECT_THROW(decode(std::span(good).first(kFrameBytes - 1), 4096, true), CorruptionError);
  EXPECT_THROW(decode(good, 4095, true), CorruptionError);
  EXPECT_NO_THROW(decode(sealed(good), 4096, true));
  for (const std::size_t at : {0u, 1u, 2u, 3u, 8u, 9u, 10u, 11u}) {
    FrameBytes bad = good;
    bad[at] = std::byte{0xee};
    EXPECT_THROW(decode(sealed(bad), 4096, true), CorruptionError) << "byte " << at;
  }
}

TEST(Frame, DetectsAFlippedBitInTheHeader) {
  const FrameBytes good = encode(sample());
  for (std::size_t bit = 0; bit < 8 * kFrameBytes; ++bit) {
    FrameBytes bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_THROW(decode(bad, std::size_t{1} << 32, true), CorruptionError) << "bit " << bit;
  }
}

TEST(Frame, DetectsAFlippedBitInEachOfTwoWords) {
  const FrameBytes good = encode(sample());
  for (std::size_t first = 0; first < 8 * kFrameBytes; ++first) {
    for (std::size_t second = first - first % 64 + 64; second < 8 * kFrameBytes; ++second) {
      FrameBytes bad = good;
      for (const std::size_t bit : {first, second})
        bad[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      std::uint32_t written = 0;
      std::memcpy(&written, bad.data() + kFrameBytes - 4, 4);
      EXPECT_NE(checksum_of(bad), written) << "bits " << first << " and " << second;
    }
  }
}

/// A setting of the job decides whether payloads are checked. The frame itself must not decide
/// this.
TEST(Frame, CannotSwitchItsChecksumOffOrOn) {
  Frame frame = sample();
  EXPECT_THROW(decode(encode(frame), 4096, false), CorruptionError);
  frame.has_crc = false;
  EXPECT_NO_THROW(decode(encode(frame), 4096, false));
  EXPECT_THROW(decode(encode(frame), 4096, true), CorruptionError);
}

TEST(Frame, RandomBytesOnlyThrow) {
  std::mt19937 random(1);
  for (int round = 0; round < 100'000; ++round) {
    FrameBytes bytes = encode(sample());
    for (int flips = 0; flips < 3; ++flips) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    try {
      EXPECT_LE(decode(sealed(bytes), 4096, true).payload_bytes, 4096u);
    } catch (const CorruptionError&) {
      continue;
    }
  }
}

TEST(Call, MatchesByWhatMustAgree) {
  const Call call{Collective::all_reduce, DType::f32, ReduceKind::sum, -1, 10, 1, -1, 0};
  Call other = call;
  other.sequence = 2;
  EXPECT_TRUE(call.matches(other));
  for (const auto change :
       {+[](Call& c) { c.collective = Collective::reduce; }, +[](Call& c) { c.dtype = DType::f64; },
        +[](Call& c) { c.kind = ReduceKind::max; }, +[](Call& c) { c.root = 0; },
        +[](Call& c) { c.count = 11; }, +[](Call& c) { c.counts_hash = 5; }}) {
    other = call;
    change(other);
    EXPECT_FALSE(call.matches(other)) << describe(other);
  }
}

TEST(Call, IsDescribedInWords) {
  EXPECT_EQ(describe({Collective::all_reduce, DType::f32, ReduceKind::avg, -1, 10, 12, -1, 0}),
            "all_reduce #12 (avg of 10 f32)");
  EXPECT_EQ(describe({Collective::broadcast, DType::u8, ReduceKind::sum, 2, 10, 3, -1, 0}),
            "broadcast #3 (10 u8, root 2)");
  EXPECT_EQ(describe({Collective::recv, DType::u8, ReduceKind::sum, -1, 10, 0, -1, 7}),
            "recv from any rank (tag 7, 10 u8)");
  EXPECT_EQ(describe({Collective::barrier, DType::u8, ReduceKind::sum, -1, 0, 4, -1, 0}),
            "barrier #4");
  Call exchange{Collective::all_to_all, DType::f64, ReduceKind::sum, -1, 0, 3, -1, 0};
  exchange.counts_hash = kOwnCounts;
  EXPECT_EQ(describe(exchange), "all_to_all #3 (f64, counts per rank)");
}

TEST(Call, DescribesADifferenceInCountsOnly) {
  Call call{Collective::all_gather, DType::f64, ReduceKind::sum, -1, 8, 1, -1, 0};
  Call other = call;
  other.counts_hash = hash_of(std::vector<std::size_t>{2, 6});
  EXPECT_EQ(describe_unlike(other, call), "all_gather #1 (8 f64) with different counts per rank");
  other.count = 9;
  EXPECT_EQ(describe_unlike(other, call), "all_gather #1 (9 f64)");
}

TEST(Call, CountsHaveAHashOnlyWhereTheyDiffer) {
  using Counts = std::vector<std::size_t>;
  EXPECT_EQ(hash_of({}), 0u);
  EXPECT_EQ(hash_of(Counts{5, 5, 5}), 0u);
  std::set<std::uint64_t> hashes;
  for (const Counts& counts :
       {Counts{2, 6}, Counts{6, 2}, Counts{8, 0}, Counts{0, 8}, Counts{2, 6, 0}, Counts{0, 2, 6}}) {
    EXPECT_GT(hash_of(counts), kOwnCounts);
    hashes.insert(hash_of(counts));
  }
  EXPECT_EQ(hashes.size(), 6u);
}

}  // namespace
}  // namespace mccl::engine
