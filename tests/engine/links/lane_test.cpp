// Tests a lane over a link that reads borrowed memory in place, like a network card with DMA.
#include "engine/links/lane.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "mccl/error.h"
#include "support/memory_link.h"

namespace mccl::engine {
namespace {

/// A link that borrows written memory and copies it only in copy(). The memory must stay unchanged
/// until then.
class BorrowingLink final : public transport::Link {
 public:
  explicit BorrowingLink(std::unique_ptr<transport::Link> inner) : inner_(std::move(inner)) {}

  std::size_t write(std::span<const std::byte> first, std::span<const std::byte> second) override {
    for (const auto& part : {first, second}) {
      if (!part.empty()) lent_.push_back(part);
    }
    return first.size() + second.size();
  }
  std::size_t borrowed() const override {
    std::size_t bytes = 0;
    for (const auto& part : lent_) bytes += part.size();
    return bytes;
  }
  /// Copies all borrowed memory, as a network card does when its DMA transfers end.
  void copy() {
    for (const auto& part : lent_) EXPECT_EQ(inner_->write(part), part.size());
    lent_.clear();
  }

  std::span<const std::byte> peek(std::size_t at_least) override { return inner_->peek(at_least); }
  void consume(std::size_t n) override { inner_->consume(n); }
  std::size_t peek_capacity() const override { return inner_->peek_capacity(); }
  std::size_t read(std::span<std::byte> to) override { return inner_->read(to); }
  int descriptor() const override { return -1; }
  std::size_t unsent() const override { return borrowed(); }
  void lose_peer(transport::Loss loss) override { inner_->lose_peer(loss); }
  std::string description() const override { return "borrowing " + inner_->description(); }

 private:
  std::unique_ptr<transport::Link> inner_;
  std::vector<std::span<const std::byte>> lent_;
};

TEST(Lane, CompletesASendOnlyAfterTheLinkHasReadItsMemory) {
  auto [near, far] = testing::MemoryLink::make();
  auto borrowing = std::make_unique<BorrowingLink>(std::move(near));
  BorrowingLink& link = *borrowing;
  LinkBytes near_bytes, far_bytes;
  Lane sender(std::move(borrowing), GroupRank(1), 4096, true, near_bytes);
  Lane receiver(std::move(far), GroupRank(0), 4096, true, far_bytes);

  std::array<std::byte, 100> payload;
  payload.fill(std::byte{1});
  Traffic traffic;
  sender.start(Frame{}, payload, 7);
  EXPECT_FALSE(sender.push(traffic)) << "the link still borrows the memory";
  EXPECT_TRUE(sender.sending());
  EXPECT_FALSE(sender.push(traffic));
  const std::uint64_t sent = traffic.bytes_sent;
  EXPECT_EQ(sent, kFrameBytes + payload.size()) << "sent twice";

  link.copy();
  EXPECT_TRUE(sender.push(traffic));
  EXPECT_FALSE(sender.sending());
  EXPECT_EQ(traffic.bytes_sent, sent);
  payload.fill(std::byte{2});  // allowed, since the send is complete

  ASSERT_NE(receiver.incoming(traffic), nullptr);
  std::array<std::byte, 100> got;
  ASSERT_TRUE(receiver.read_payload(got, traffic));
  EXPECT_NO_THROW(receiver.finish_incoming());
  EXPECT_EQ(got[99], std::byte{1});
  EXPECT_EQ(near_bytes.sent, sent);
  EXPECT_EQ(far_bytes.received, sent);
}

TEST(Lane, ACorruptByteIsAnErrorOnlyWithChecksums) {
  for (const bool crc : {false, true}) {
    auto [near, far] = testing::MemoryLink::make();
    auto late = std::make_unique<BorrowingLink>(std::move(near));
    BorrowingLink& link = *late;
    LinkBytes near_bytes, far_bytes;
    Lane sender(std::move(late), GroupRank(1), 4096, crc, near_bytes);
    Lane receiver(std::move(far), GroupRank(0), 4096, crc, far_bytes);
    std::array<std::byte, 100> payload = {};
    Traffic traffic;
    sender.start(Frame{}, payload, 7);
    EXPECT_FALSE(sender.push(traffic));
    payload[50] ^= std::byte{4};  // the checksum has been sent already
    link.copy();
    ASSERT_NE(receiver.incoming(traffic), nullptr);
    std::array<std::byte, 100> got;
    ASSERT_TRUE(receiver.read_payload(got, traffic));
    if (!crc) {
      EXPECT_NO_THROW(receiver.finish_incoming());
      continue;
    }
    try {
      receiver.finish_incoming();
      ADD_FAILURE() << "the damage was not noticed";
    } catch (const CorruptionError& error) {
      EXPECT_NE(std::string(error.what()).find("from rank 0 over"), std::string::npos);
      EXPECT_NE(std::string(error.what()).find("the network damages data"), std::string::npos);
    }
  }
}

/// The sends of a destroyed group end before its links are destroyed. The peer must not pull memory
/// that the caller may then change.
TEST(Lane, LendsNoMemoryAfterItsLinkWasTaken) {
  auto [near, far] = testing::MemoryLink::make();
  near->lend_memory();
  LinkBytes bytes;
  Lane lane(std::move(near), GroupRank(1), 4096, false, bytes);
  const std::byte there = {};
  std::byte here = {};
  const auto pull = [&] {
    far->read_peer(reinterpret_cast<std::uintptr_t>(&there), std::span(&here, 1));
  };
  EXPECT_NO_THROW(pull());
  const std::unique_ptr<transport::Link> link = lane.take_link();
  EXPECT_THROW(pull(), transport::LinkClosed);
}

}  // namespace
}  // namespace mccl::engine
