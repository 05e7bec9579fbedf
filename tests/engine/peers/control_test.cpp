#include "engine/peers/control.h"

#include <gtest/gtest.h>

#include <random>

#include "mccl/error.h"

namespace mccl::engine {
namespace {

ControlMessage sample() {
  ControlMessage message;
  message.kind = ControlKind::abort;
  message.key = {0x0123456789abcdefULL, transport::Purpose::point_to_point, 3};
  message.call = {Collective::gather, DType::c64, ReduceKind::sum, 1, 99, 7, -1, 0,
                  0x123456789abcdef0};
  message.failure = {FailureKind::timeout, "rank 2 is late", {}, GroupRank(5)};
  message.transport = "carrier8";
  message.blob.assign(transport::kMostBlobBytes, std::byte{0x5a});
  return message;
}

TEST(ControlMessage, SurvivesEncodingAndDecoding) {
  const std::vector<std::byte> bytes = encode(sample());
  const std::optional<DecodedControl> back = decode_control(bytes);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->bytes, bytes.size());
  EXPECT_EQ(back->message.kind, ControlKind::abort);
  EXPECT_EQ(back->message.key, sample().key);
  EXPECT_TRUE(back->message.call.matches(sample().call));
  EXPECT_EQ(back->message.call.counts_hash, sample().call.counts_hash);
  EXPECT_EQ(back->message.call.sequence, 7u);
  EXPECT_EQ(back->message.failure.kind, FailureKind::timeout);
  EXPECT_EQ(back->message.failure.reason, "rank 2 is late");
  EXPECT_EQ(back->message.failure.seen_by, GroupRank(5));
  EXPECT_EQ(back->message.transport, "carrier8");
  EXPECT_EQ(back->message.blob, sample().blob);
}

TEST(ControlMessage, IsNotParsedBeforeItIsComplete) {
  const std::vector<std::byte> bytes = encode(sample());
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_FALSE(decode_control(std::span(bytes).first(n))) << n;
  }
}

TEST(ControlMessage, RefusesABlobAboveTheLimit) {
  ControlMessage message = sample();
  message.blob.push_back({});
  EXPECT_THROW(encode(message), InvalidArgument);
}

TEST(ControlMessage, CutsALongReason) {
  ControlMessage message = sample();
  message.blob.clear();
  message.failure.reason.assign(1 << 20, 'x');
  const std::vector<std::byte> bytes = encode(message);
  EXPECT_LT(bytes.size(), 4096u);
  EXPECT_EQ(decode_control(bytes)->bytes, bytes.size());
}

TEST(ControlMessage, RandomBytesOnlyThrow) {
  std::mt19937 random(2);
  for (int round = 0; round < 100'000; ++round) {
    std::vector<std::byte> bytes = encode(sample());
    for (int flips = 0; flips < 3; ++flips) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    try {
      const auto decoded = decode_control(bytes);
      if (decoded) {
        EXPECT_LE(decoded->bytes, bytes.size());
      }
    } catch (const CorruptionError&) {
      continue;
    }
  }
}

TEST(Failure, KeepsItsKindAcrossRanks) {
  for (int kind = 0; kind < kFailureKindCount; ++kind) {
    try {
      std::rethrow_exception(exception_of(static_cast<FailureKind>(kind), "why"));
    } catch (const Error& error) {
      EXPECT_EQ(failure_of(error).kind, static_cast<FailureKind>(kind));
      EXPECT_EQ(failure_of(error).reason, "why");
    }
  }
}

}  // namespace
}  // namespace mccl::engine
