// Pins the first bytes of a connection, like engine/links/frame_bytes_test.cpp.
#include <gtest/gtest.h>

#include "rendezvous/cabling/link_state.h"
#include "rendezvous/connections/handshake.h"
#include "rendezvous/connections/proof.h"
#include "rendezvous/store/memory_store.h"
#include "support/hex.h"

namespace mccl::rendezvous {
namespace {

using mccl::testing::hex;

TEST(HandshakeBytes, OfAHelloWithoutItsNonce) {
  const Party self{.rank = 1, .size = 3, .job_key = "key", .agreement = ""};
  const Handshake dialer =
      Handshake::dialer(self, 2, {0x0102030405060708, transport::Purpose::point_to_point, 4});
  const auto bytes = dialer.output();
  ASSERT_GT(bytes.size(), kNonceBytes);
  EXPECT_EQ(hex(bytes.first(bytes.size() - kNonceBytes)),
            "4d43434c11000102040807060504030201010000000200000003000000");
}

TEST(StoreBytes, OfARequestAndItsAnswer) {
  EXPECT_EQ(hex(encode(StoreKind::add, "key", "val", 0x0102)),
            "02030000000300000002010000000000006b657976616c");
  EXPECT_EQ(hex(encode(StoreKind::missing, {}, "val", -2)),
            "050000000003000000feffffffffffffff76616c");
}

TEST(CableNewsBytes, OfASighting) {
  CableNews news;
  news.kind = CableNews::Kind::sighting;
  news.sighting = {.rank = 3, .version = 2, .settled = true, .port = 29603, .cables = {{1, 3}}};
  const Bytes bytes = encode(news);
  EXPECT_EQ(hex(std::span(bytes).first(kNewsHeaderBytes)), "66000000");
  EXPECT_EQ(text_of(std::span(bytes).subspan(kNewsHeaderBytes)),
            R"({"cables":[[1,3,"",""]],"kind":0,"port":29603,"ports":[],"rank":3,"settled":true,)"
            R"("version":2,"why":""})");
}

}  // namespace
}  // namespace mccl::rendezvous
