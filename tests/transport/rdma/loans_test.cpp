// Tests sends directly from the caller's memory: when memory is registered, and that the device
// never reads memory after it is returned to its owner. The simulated device reads as late as a
// test says, and only registered memory.
#include <gmock/gmock.h>

#include "transport/rdma/device/device.h"
#include "transport/rdma/linked_ends.h"

namespace mccl::transport::rdma {
namespace {

using mccl::testing::Fabric;
using mccl::testing::Fate;

constexpr std::size_t kMuch = std::size_t{1} << 20;

class RdmaLoans : public LinkedEnds {
 protected:
  void connect() {
    for (auto& [name, device] : verbs_->known) device.limits.lends = lends_;
    LinkedEnds::connect(Service::rc);
    slots_ = fabric_.regions.size();
  }

  /// Sends `head` bytes and then the body, while the other end reads. Returns what arrives.
  Bytes carry(std::span<const std::byte> body, std::size_t head = 56) {
    const Bytes before(head, std::byte{9});
    Bytes got(head + body.size());
    std::size_t sent = 0, read = 0;
    while (read < got.size()) {
      sent += sent < head ? a_->write(std::span(before).subspan(sent), body)
                          : a_->write(body.subspan(sent - head));
      read += b_->read(std::span(got).subspan(read));
    }
    return {got.begin() + static_cast<std::ptrdiff_t>(head), got.end()};
  }
  std::size_t lent() const { return fabric_.regions.size() - slots_; }

  bool lends_ = true;
  std::size_t slots_ = 0;
};

Bytes pattern_of(std::size_t bytes) {
  Bytes made(bytes);
  for (std::size_t i = 0; i < bytes; ++i) made[i] = static_cast<std::byte>(i * 7 + (i >> 8));
  return made;
}

TEST_F(RdmaLoans, ReadsLargeMessagesInPlace) {
  connect();
  const Bytes body = pattern_of(kMuch);
  EXPECT_TRUE(carry(body) == body);
  EXPECT_EQ(a_->moved().sent_in_place, body.size());
  EXPECT_EQ(a_->moved().sent_by_copy, 56u) << "only the head must be copied";
  EXPECT_EQ(a_->borrowed(), 0u);
  EXPECT_EQ(lent(), 0u) << "nothing stays registered";
}

TEST_F(RdmaLoans, CopiesSmallMessages) {
  connect();
  const Bytes body = pattern_of(Loans::kLeast - 1);
  EXPECT_TRUE(carry(body) == body);
  EXPECT_EQ(a_->moved().sent_in_place, 0u);
}

TEST_F(RdmaLoans, RegistersMemoryOncePerMessage) {
  connect();
  int registrations = 0;
  fabric_.gate = [&](const std::string& call) {
    registrations += call == "ibv_reg_mr";
    return 0;
  };
  const Bytes body = pattern_of(4 * kMuch);
  for (int i = 1; i <= 3; ++i) {
    EXPECT_TRUE(carry(body) == body);
    EXPECT_EQ(a_->borrowed(), 0u);
    EXPECT_EQ(registrations, i);
    EXPECT_EQ(lent(), 0u);
  }
}

/// The memory is reused at the same address with other contents.
TEST_F(RdmaLoans, MemoryThatIsFreedAndUsedAgainIsNotMistaken) {
  connect();
  Bytes body(kMuch);
  for (int round = 0; round < 20; ++round) {
    std::fill(body.begin(), body.end(), static_cast<std::byte>(round));
    EXPECT_TRUE(carry(body, round % 2 == 0 ? 0 : 56) == body) << round;
    ASSERT_EQ(a_->borrowed(), 0u);
    ASSERT_EQ(lent(), 0u);
  }
}

TEST_F(RdmaLoans, BorrowsMemoryUntilTheDeviceHasReadIt) {
  connect();
  fabric_.judge = [](Fabric::Message&) { return Fate{Fate::Kind::held}; };
  Bytes body = pattern_of(Loans::kLeast);
  const Bytes wanted = body;
  std::size_t sent = 0;
  while (const std::size_t n = a_->write(std::span(body).subspan(sent))) sent += n;
  EXPECT_GT(a_->borrowed(), 0u);
  EXPECT_EQ(lent(), 1u);
  fabric_.judge = {};
  Bytes got(body.size());
  std::size_t read = 0;
  while (read < got.size()) {
    fabric_.release();
    sent += a_->write(std::span(body).subspan(sent));
    if (sent == body.size() && a_->borrowed() == 0)
      std::fill(body.begin(), body.end(), std::byte{0xee});
    read += b_->read(std::span(got).subspan(read));
  }
  EXPECT_TRUE(got == wanted);
  EXPECT_EQ(lent(), 0u);
}

/// The owner may free the memory as soon as the link is destroyed, even with messages in flight.
TEST_F(RdmaLoans, ADestroyedLinkReturnsMemoryImmediately) {
  connect();
  fabric_.judge = [](Fabric::Message&) { return Fate{Fate::Kind::held}; };
  {
    const Bytes body = pattern_of(kMuch);
    ASSERT_GT(a_->write(body), 0u);
    EXPECT_EQ(lent(), 1u);
    a_.reset();
    EXPECT_EQ(lent(), 0u);
    EXPECT_EQ(ends_.stations[0]->device().loans().in_use(), 0u);
  }
  EXPECT_EQ(ends_.stations[0]->pairs(), 0u) << "the device could still read the memory";
  fabric_.release();
}

TEST_F(RdmaLoans, ALinkThatEndsNotifiesTheOwnerOfBorrowedMemory) {
  connect();
  const Bytes body = pattern_of(Loans::kLeast);
  fabric_.judge = [](Fabric::Message&) { return Fate{Fate::Kind::forgotten}; };
  ASSERT_GT(a_->write(body), 0u);
  a_->lose_peer(Loss::silence);
  EXPECT_GT(a_->borrowed(), 0u);
  EXPECT_THROW(a_->write({}), LinkClosed);
}

TEST_F(RdmaLoans, ADeviceThatRefusesRegistrationGetsCopies) {
  connect();
  int refused = 0;
  fabric_.gate = [&](const std::string& call) {
    if (call != "ibv_reg_mr") return 0;
    ++refused;
    return ENOMEM;
  };
  const Bytes body = pattern_of(kMuch);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(carry(body) == body);
  EXPECT_EQ(a_->moved().sent_in_place, 0u);
  EXPECT_GT(refused, 0);
  EXPECT_LE(refused, 10);
}

TEST_F(RdmaLoans, CopiesEverythingIfAForkWouldDoHarm) {
  lends_ = false;
  connect();
  const Bytes body = pattern_of(kMuch);
  EXPECT_TRUE(carry(body) == body);
  EXPECT_EQ(a_->moved().sent_in_place, 0u);
}

TEST_F(RdmaLoans, NoMoreRegionsAreUsedThanADeviceShouldHave) {
  connect();
  VerbsDevice& device = ends_.stations[0]->device();
  const Bytes body(kMuch);
  std::vector<std::unique_ptr<Loan>> loans;
  for (int i = 0; i < 100; ++i) {
    if (auto loan = device.loans().take(body)) loans.push_back(std::move(loan));
  }
  EXPECT_LE(loans.size(), VerbsDevice::kMostLoans);
  EXPECT_GT(loans.size(), 0u);
  std::vector<PairAtStation> pairs;
  for (int i = 0; i < 300; ++i)
    pairs.push_back(ends_.stations[0]->make_pair(Service::uc, {WorldRank(1), {}}));
  EXPECT_LE(fabric_.most_regions, VerbsDevice::kMostRegions);
}

TEST_F(RdmaLoans, SendingOtherMemoryEndsTheLoan) {
  connect();
  const Bytes first = pattern_of(kMuch), second = pattern_of(kMuch / 2);
  const std::size_t begun = a_->write(first);
  ASSERT_LT(begun, first.size());
  Bytes got(begun);
  ASSERT_EQ(b_->read(got), begun);
  EXPECT_TRUE(carry(second) == second);
  EXPECT_EQ(a_->borrowed(), 0u);
  EXPECT_EQ(lent(), 0u);
}

/// Received data is handed out in the slot into which the device has written it.
TEST_F(RdmaLoans, ReducesFromTheSlots) {
  connect();
  const Bytes body = pattern_of(kMuch);
  std::size_t sent = 0, taken = 0;
  while (taken < body.size()) {
    sent += a_->write(std::span(body).subspan(sent));
    // Takes whole elements of at most 8 bytes, as many as have arrived, like the engine.
    const std::size_t wanted = std::min<std::size_t>(body.size() - taken, b_->peek_capacity());
    const std::size_t n = b_->peek(wanted).size() / 8 * 8;
    b_->consume(n);
    taken += n;
  }
  EXPECT_EQ(b_->moved().taken_in_place, body.size());
  EXPECT_EQ(b_->moved().joined, 0u);
  EXPECT_EQ(b_->moved().read_by_copy, 0u);
}

}  // namespace
}  // namespace mccl::transport::rdma
