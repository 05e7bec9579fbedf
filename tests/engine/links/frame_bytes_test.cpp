// Compares frames with their wire format byte for byte. The format must be equal on every processor
// and system, because a group may mix them. If it changes, the protocol needs a new version.
#include <gtest/gtest.h>

#include "engine/links/frame.h"
#include "support/hex.h"

namespace mccl::engine {
namespace {

TEST(FrameBytes, OfACollective) {
  Frame frame;
  frame.kind = FrameKind::collective;
  frame.call = {Collective::all_reduce, DType::f32, ReduceKind::sum, -1, 0x1122334455667788, 12};
  frame.message = 3;
  frame.payload_bytes = 0x00abcdef;
  EXPECT_EQ(mccl::testing::hex(encode(frame)),
            "434d000000000000000b0000ffffffff88776655443322110000000000000000"
            "0c0000000000000003000000efcdab0000000000d29b4125");
}

TEST(FrameBytes, OfAMessageWithAChecksum) {
  Frame frame;
  frame.kind = FrameKind::eager;
  frame.call = {Collective::send, DType::bf16, ReduceKind::sum, -1, 5, 42, -1, 77};
  frame.payload_bytes = 10;
  frame.crc = 0xdeadbeef;
  frame.has_crc = true;
  EXPECT_EQ(mccl::testing::hex(encode(frame)),
            "434d01014d000000090a0000ffffffff05000000000000000000000000000000"
            "2a00000000000000000000000a000000efbeadde9e4927de");
}

}  // namespace
}  // namespace mccl::engine
