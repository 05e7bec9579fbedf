// Compares control messages with their wire format byte for byte, as frame_bytes_test.cpp does for
// frames.
#include <gtest/gtest.h>

#include "engine/peers/control.h"
#include "support/hex.h"

namespace mccl::engine {
namespace {

using mccl::testing::hex;

TEST(ControlBytes, OfAHeartbeat) {
  ControlMessage message;
  message.kind = ControlKind::heartbeat;
  EXPECT_EQ(hex(encode(message)),
            "090000030000000000000000000000000000000000000000ffffffff00000000"
            "08010000ffffffff000000000000000000000000000000000000000000000000");
}

TEST(ControlBytes, OfAnArrival) {
  ControlMessage message;
  message.kind = ControlKind::arrived;
  EXPECT_EQ(hex(encode(message)),
            "0a0000030000000000000000000000000000000000000000ffffffff00000000"
            "08010000ffffffff000000000000000000000000000000000000000000000000");
}

TEST(ControlBytes, OfALinkToBeMade) {
  ControlMessage message;
  message.kind = ControlKind::link;
  message.key = {0x0102030405060708, transport::Purpose::collective, 2};
  message.transport = "shm";
  message.blob = {std::byte{0xaa}, std::byte{0xbb}};
  EXPECT_EQ(hex(encode(message)),
            "0101020302000000080706050403020173686d0000000000ffffffff00000000"
            "08010000ffffffff000000000000000000000000000000000000000000000000"
            "aabb");
}

TEST(ControlBytes, OfAnAbort) {
  ControlMessage message;
  message.kind = ControlKind::abort;
  message.key.group = 7;
  message.call = {Collective::broadcast, DType::i64, ReduceKind::sum, 1, 9, 4};
  message.failure.reason = "why";
  message.failure.seen_by = GroupRank(2);
  EXPECT_EQ(hex(encode(message)),
            "0500000300000300070000000000000000000000000000000200000000000000"
            "0108000001000000090000000000000000000000000000000400000000000000"
            "776879");
}

}  // namespace
}  // namespace mccl::engine
