#include "engine/frame.h"

#include <gtest/gtest.h>

#include <random>

#include "mccl/error.h"

namespace mccl::engine {
namespace {

Frame sample() {
  Frame frame;
  frame.kind = FrameKind::eager;
  frame.call = {Collective::reduce, DType::bf16, ReduceKind::max, 3, 1'000'000'007, 42, -1, 77};
  frame.message = 5;
  frame.payload_bytes = 4096;
  frame.crc = 0xdeadbeef;
  frame.has_crc = true;
  return frame;
}

TEST(Frame, ComesBackAsItWent) {
  const Frame frame = sample();
  const Frame back = decode(encode(frame), 4096);
  EXPECT_EQ(back.kind, frame.kind);
  EXPECT_EQ(back.call.collective, frame.call.collective);
  EXPECT_EQ(back.call.dtype, frame.call.dtype);
  EXPECT_EQ(back.call.kind, frame.call.kind);
  EXPECT_EQ(back.call.root, frame.call.root);
  EXPECT_EQ(back.call.count, frame.call.count);
  EXPECT_EQ(back.call.sequence, frame.call.sequence);
  EXPECT_EQ(back.call.tag, frame.call.tag);
  EXPECT_EQ(back.message, frame.message);
  EXPECT_EQ(back.payload_bytes, frame.payload_bytes);
  EXPECT_EQ(back.crc, frame.crc);
  EXPECT_TRUE(back.has_crc);
}

TEST(Frame, RefusesWhatCannotBeOne) {
  const FrameBytes good = encode(sample());
  EXPECT_THROW(decode(std::span(good).first(kFrameBytes - 1), 4096), CorruptionError);
  EXPECT_THROW(decode(good, 4095), CorruptionError);
  for (const std::size_t at : {0u, 1u, 2u, 3u, 4u, 5u, 6u, 7u, 44u}) {
    FrameBytes bad = good;
    bad[at] = std::byte{0xee};
    EXPECT_THROW(decode(bad, 4096), CorruptionError) << "byte " << at;
  }
}

TEST(Frame, RandomBytesNeverDoMoreThanThrow) {
  std::mt19937 random(1);
  for (int round = 0; round < 100'000; ++round) {
    FrameBytes bytes = encode(sample());
    for (int flips = 0; flips < 3; ++flips) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    try {
      EXPECT_LE(decode(bytes, 4096).payload_bytes, 4096u);
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
        +[](Call& c) { c.count = 11; }}) {
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
}

}  // namespace
}  // namespace mccl::engine
