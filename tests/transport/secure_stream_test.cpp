// Tests TLS connections: runs the conformance suite of links on them, and checks that altered or
// repeated records and wrong keys are refused.
#include "transport/tcp/secure_stream.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <random>
#include <vector>

#include "transport/link_conformance.h"
#include "transport/tcp/kernel_tls.h"
#include "transport/tcp/link.h"
#include "transport/tcp_pair.h"

namespace mccl::transport {
namespace {

using tcp::connected_sockets;
using tcp::encrypt;
using tcp::encrypted_sockets;
using tcp::Encryption;
using tcp::KernelTls;
using tcp::Outbox;
using tcp::Outcome;
using tcp::SecureStream;
using tcp::shake_hands;
using tcp::Socket;
using tcp::SocketPair;
using tcp::TcpLink;
using tcp::test_key;
using State = SecureStream::State;

/// Sends what either end of the pair holds, as an engine does while it sleeps.
class PollingWithOutbox : public Waiter {
 public:
  explicit PollingWithOutbox(std::shared_ptr<Outbox> outbox) : outbox_(std::move(outbox)) {}

  bool wait(const Link& link, short events, int timeout_ms) override {
    for (;;) {
      std::vector<pollfd> entries = {{link.descriptor(), events, 0}};
      outbox_->watch(entries);
      if (::poll(entries.data(), entries.size(), timeout_ms) <= 0) return false;
      outbox_->flush();
      if (entries.front().revents != 0) return true;
    }
  }

 private:
  std::shared_ptr<Outbox> outbox_;
};

LinkFactory encrypted(const std::string& name, const std::shared_ptr<const Encryption>& by,
                      std::size_t threads = 0, std::shared_ptr<const Encryption> by_far = nullptr) {
  if (!by_far) by_far = by;
  const auto outbox = std::make_shared<Outbox>(threads);
  return {.name = name,
          .connect = [outbox, by, by_far]() -> LinkPair {
            auto [near, far] = encrypted_sockets("127.0.0.1", by, by_far);
            near.secure()->use(outbox);
            far.secure()->use(outbox);
            return {std::make_unique<TcpLink>(std::move(near), "rank 1"),
                    std::make_unique<TcpLink>(std::move(far), "rank 0")};
          },
          .waiter = [outbox](int) { return std::make_unique<PollingWithOutbox>(outbox); },
          .needs_one_thread = true};
}

/// The ways in which the kernel can encrypt, if this host's can: at both ends, or at one.
std::vector<LinkFactory> encrypted_by_kernel() {
  if (!tcp::kernel_offers_tls()) return {};
  const auto kernel = Encryption::by_key(Encryption::kRecordsPerKey, KernelTls::always);
  return {encrypted("by_kernel", kernel),
          encrypted("by_kernel_and_mccl", kernel, 0, Encryption::by_key()),
          encrypted("by_kernel_with_many_keys", Encryption::by_key(7, KernelTls::always)),
          encrypted("by_mccl_and_kernel_with_many_keys", Encryption::by_key(7), 2,
                    Encryption::by_key(7, KernelTls::always))};
}

INSTANTIATE_TEST_SUITE_P(KernelTls, LinkConformance, ::testing::ValuesIn(encrypted_by_kernel()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(EncryptedTcp, LinkConformance,
                         ::testing::Values(encrypted("by_key", Encryption::by_key()),
                                           encrypted("with_many_keys", Encryption::by_key(3)),
                                           encrypted("with_threads", Encryption::by_key(), 3),
                                           encrypted("with_threads_and_many_keys",
                                                     Encryption::by_key(7), 2)),
                         [](const auto& info) { return info.param.name; });

/// A TLS connection through a relay in this test, which can read and change its bytes. The
/// parameter says whether the kernel encrypts.
class OnTheWay : public ::testing::TestWithParam<KernelTls> {
 protected:
  OnTheWay() : near_(connected_sockets("127.0.0.1")), far_(connected_sockets("127.0.0.1")) {
    ends_ = {std::move(near_.first), std::move(far_.second)};
    const auto encryption = Encryption::by_key(Encryption::kRecordsPerKey, GetParam());
    encrypt(ends_.first, SecureStream::Role::client, encryption);
    encrypt(ends_.second, SecureStream::Role::server, encryption);
  }

  /// Passes on what has arrived. `change` may alter the bytes that go to the far end.
  template <typename Change>
  void pass(Change change) {
    std::array<std::byte, 1 << 16> bytes;
    if (const auto got = near_.second.receive(bytes).bytes; got > 0) {
      change(std::span(bytes).first(got));
      to_far_.insert(to_far_.end(), bytes.begin(), bytes.begin() + static_cast<long>(got));
      EXPECT_EQ(far_.first.send(std::span(bytes).first(got)).bytes, got);
    }
    if (const auto got = far_.first.receive(bytes).bytes; got > 0) {
      EXPECT_EQ(near_.second.send(std::span(bytes).first(got)).bytes, got);
    }
  }
  void pass() {
    pass([](std::span<std::byte>) {});
  }

  void open() {
    const Clock::time_point limit = Clock::now() + std::chrono::seconds(20);
    State near = State::waiting;
    State far = State::waiting;
    while ((near != State::open || far != State::open) && Clock::now() < limit) {
      near = ends_.first.secure()->advance();
      pass();
      far = ends_.second.secure()->advance();
      pass();
    }
    ASSERT_EQ(near, State::open);
    ASSERT_EQ(far, State::open);
    for (const Socket* end : {&ends_.first, &ends_.second}) {
      end->secure()->use(std::make_shared<Outbox>());
      EXPECT_EQ(end->secure()->is_in_kernel(), GetParam() == KernelTls::always);
    }
  }

  /// Passes bytes on, with changes, until the far end has received some or has failed.
  template <typename Change>
  tcp::TransferResult received(std::span<std::byte> to, Change change) {
    const Clock::time_point limit = Clock::now() + std::chrono::seconds(20);
    tcp::TransferResult moved{0, EAGAIN};
    while (moved.error == EAGAIN && Clock::now() < limit) {
      pass(change);
      moved = ends_.second.receive(to);
    }
    return moved;
  }

  SocketPair near_;
  SocketPair far_;
  SocketPair ends_;
  Bytes to_far_;
};

TEST_P(OnTheWay, OnlyCiphertextPasses) {
  open();
  const std::string secret = "the weights of the model";
  const auto bytes = std::as_bytes(std::span(secret));
  ASSERT_EQ(ends_.first.send(bytes).bytes, bytes.size());
  Bytes got(bytes.size());
  EXPECT_EQ(received(got, [](std::span<std::byte>) {}).bytes, bytes.size());
  EXPECT_TRUE(std::ranges::equal(got, bytes));
  EXPECT_TRUE(std::ranges::search(to_far_, bytes).empty());
  EXPECT_TRUE(std::ranges::search(to_far_, test_key()).empty());
}

class AlteredRecord : public OnTheWay {
 protected:
  /// Changes the byte at `position` of a record.
  void expect_refusal(std::size_t position, std::byte change) {
    open();
    ASSERT_EQ(ends_.first.send(Bytes(1000, std::byte{1})).bytes, 1000u);
    Bytes got(1000);
    const auto alter = [&](std::span<std::byte> bytes) { bytes[position] ^= change; };
    EXPECT_EQ(received(got, alter).error, EBADMSG);
    EXPECT_EQ(ends_.second.receive(got).error, EBADMSG);
    // The sender learns why the stream ends.
    const Clock::time_point limit = Clock::now() + std::chrono::seconds(20);
    tcp::TransferResult told{0, EAGAIN};
    while (told.error == EAGAIN && Clock::now() < limit) {
      pass();
      told = ends_.first.receive(got);
    }
    EXPECT_EQ(told.error, EBADMSG);
  }
};

TEST_P(AlteredRecord, IsRefusedForItsPayload) { expect_refusal(500, std::byte{1}); }
/// The kernel does not use the type in the header: it checks the one in the encrypted part.
TEST_P(AlteredRecord, IsRefusedForItsTypeOrKeepsIt) {
  if (GetParam() == KernelTls::never) return expect_refusal(0, std::byte{1});
  open();
  const Bytes sent(1000, std::byte{1});
  ASSERT_EQ(ends_.first.send(sent).bytes, sent.size());
  Bytes got(sent.size());
  EXPECT_EQ(received(got, [](std::span<std::byte> bytes) { bytes[0] ^= std::byte{1}; }).bytes,
            sent.size());
  EXPECT_EQ(got, sent);
}
TEST_P(AlteredRecord, IsRefusedForItsVersion) { expect_refusal(2, std::byte{7}); }
TEST_P(AlteredRecord, IsRefusedForASmallLength) { expect_refusal(3, std::byte{2}); }
TEST_P(AlteredRecord, IsRefusedForALargeLength) { expect_refusal(3, std::byte{0x50}); }

TEST_P(OnTheWay, ACutConnectionIsAnError) {
  open();
  ASSERT_EQ(ends_.first.send(Bytes(10, std::byte{1})).bytes, 10u);
  Bytes got(100);
  EXPECT_EQ(received(got, [](std::span<std::byte>) {}).bytes, 10u);
  ::shutdown(far_.first.descriptor(), SHUT_WR);
  const auto moved = received(got, [](std::span<std::byte>) {});
  EXPECT_EQ(moved.bytes, 0u);
  EXPECT_EQ(moved.error, ECONNRESET);
}

TEST_P(OnTheWay, ARecordIsAcceptedOnlyOnce) {
  open();
  ASSERT_EQ(ends_.first.send(Bytes(10, std::byte{1})).bytes, 10u);
  to_far_.clear();
  Bytes got(100);
  EXPECT_EQ(received(got, [](std::span<std::byte>) {}).bytes, 10u);
  ASSERT_EQ(far_.first.send(to_far_).bytes, to_far_.size());
  EXPECT_EQ(received(got, [](std::span<std::byte>) {}).error, EBADMSG);
}

/// The owner of the connection after the handshake polls before it reads.
TEST_P(OnTheWay, BytesRightAfterTheHandshakeAreReportedByPoll) {
  const Clock::time_point limit = Clock::now() + std::chrono::seconds(20);
  while (ends_.first.secure()->advance() != State::open && Clock::now() < limit) {
    pass();
    ASSERT_NE(ends_.second.secure()->advance(), State::failed);
    pass();
  }
  // These bytes reach the server together with the end of the handshake.
  ASSERT_EQ(ends_.first.send(Bytes(10, std::byte{1})).bytes, 10u);
  pass();
  while (ends_.second.secure()->advance() != State::open && Clock::now() < limit) pass();
  EXPECT_FALSE(ends_.second.has_input());
  ends_.second.secure()->use(std::make_shared<Outbox>());
  pollfd entry = {ends_.second.descriptor(), POLLIN, 0};
  EXPECT_EQ(::poll(&entry, 1, 20'000), 1);
}

class Closing : public ::testing::TestWithParam<KernelTls> {};

/// The ways to encrypt: by the kernel only if this host's can.
std::vector<KernelTls> ways() {
  if (!tcp::kernel_offers_tls()) return {KernelTls::never};
  return {KernelTls::never, KernelTls::always};
}
std::string name_of_way(const ::testing::TestParamInfo<KernelTls>& info) {
  return info.param == KernelTls::always ? "by_kernel" : "by_mccl";
}
INSTANTIATE_TEST_SUITE_P(SecureStream, OnTheWay, ::testing::ValuesIn(ways()), name_of_way);
INSTANTIATE_TEST_SUITE_P(SecureStream, AlteredRecord, ::testing::ValuesIn(ways()), name_of_way);
INSTANTIATE_TEST_SUITE_P(SecureStream, Closing, ::testing::ValuesIn(ways()), name_of_way);

TEST_P(Closing, NotifiesThePeer) {
  auto [near, far] =
      encrypted_sockets("127.0.0.1", Encryption::by_key(Encryption::kRecordsPerKey, GetParam()));
  for (const Socket* end : {&near, &far}) end->secure()->use(std::make_shared<Outbox>());
  near.close();
  Bytes got(10);
  pollfd entry = {far.descriptor(), POLLIN, 0};
  ASSERT_GT(::poll(&entry, 1, 20'000), 0);
  const auto moved = far.receive(got);
  EXPECT_EQ(moved.bytes, 0u);
  EXPECT_EQ(moved.error, 0);
}

TEST(SecureStream, EndsWithDifferentKeysRefuseEachOther) {
  SocketPair ends = connected_sockets("127.0.0.1");
  encrypt(ends.first, SecureStream::Role::client, Encryption::by_key());
  encrypt(ends.second, SecureStream::Role::server, Encryption::by_key(), test_key(std::byte{6}));
  const Outcome outcome = shake_hands(ends);
  EXPECT_EQ(outcome.near, State::failed);
  EXPECT_EQ(outcome.far, State::failed);
  EXPECT_FALSE(ends.first.secure()->trouble().empty());
  EXPECT_FALSE(ends.second.secure()->trouble().empty());
}

TEST(SecureStream, EachConnectionHasItsOwnKeys) {
  std::array<Bytes, 2> on_the_wire;
  for (Bytes& wire : on_the_wire) {
    auto [near, far] = encrypted_sockets("127.0.0.1", Encryption::by_key());
    ASSERT_EQ(near.send(Bytes(100, std::byte{1})).bytes, 100u);
    wire.resize(1000);
    pollfd entry = {far.descriptor(), POLLIN, 0};
    ASSERT_GT(::poll(&entry, 1, 20'000), 0);
    const ssize_t got = ::recv(far.descriptor(), wire.data(), wire.size(), 0);
    ASSERT_GT(got, 100);
    wire.resize(static_cast<std::size_t>(got));
  }
  EXPECT_NE(on_the_wire[0], on_the_wire[1]);
}

/// Endless replacements of the key would otherwise occupy the engine's thread.
TEST(SecureStream, APeerThatOnlyReplacesItsKeyIsRefused) {
  auto [near, far] = encrypted_sockets("127.0.0.1", Encryption::by_key());
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(near.secure()->replace_key());
  ASSERT_EQ(near.flush(), 0);
  Bytes got(10);
  pollfd entry = {far.descriptor(), POLLIN, 0};
  ASSERT_GT(::poll(&entry, 1, 20'000), 0);
  const Clock::time_point limit = Clock::now() + std::chrono::seconds(20);
  tcp::TransferResult moved{0, EAGAIN};
  while (moved.error == EAGAIN && Clock::now() < limit) moved = far.receive(got);
  EXPECT_EQ(moved.error, EBADMSG);
}

/// The bytes are encrypted once they are accepted, so the caller may change its memory.
TEST(SecureStream, TheCallerMayReuseAcceptedBytes) {
  auto [near, far] = encrypted_sockets("127.0.0.1", Encryption::by_key());
  Bytes block(1 << 18);
  Bytes sent;
  for (unsigned round = 0;; ++round) {
    std::ranges::fill(block, static_cast<std::byte>(round));
    const std::size_t taken = near.send(block).bytes;
    if (taken == 0) break;
    sent.insert(sent.end(), block.begin(), block.begin() + static_cast<long>(taken));
  }
  EXPECT_GT(near.pending(), 0u);
  EXPECT_GE(near.unacknowledged(), near.pending());
  Bytes got;
  Bytes piece(100'000);
  const Clock::time_point limit = Clock::now() + std::chrono::seconds(20);
  while (got.size() < sent.size() && Clock::now() < limit) {
    (void)near.flush();
    const std::size_t bytes = far.receive(piece).bytes;
    got.insert(got.end(), piece.begin(), piece.begin() + static_cast<long>(bytes));
  }
  EXPECT_TRUE(got == sent);
}

/// Messages of random sizes cross in both directions, through buffers that fill up at random
/// places.
void expect_bytes_in_order(SocketPair ends, std::size_t threads,
                           const std::size_t total = std::size_t{64} << 20) {
  std::array<Socket*, 2> sockets = {&ends.first, &ends.second};
  for (Socket* socket : sockets) socket->secure()->use(std::make_shared<Outbox>(threads));
  std::mt19937 random(1);
  Bytes data(std::size_t{1} << 21);
  for (std::byte& each : data) each = static_cast<std::byte>(random());
  Bytes got(data.size());
  const auto part = [&](std::uint64_t at) {
    const std::size_t begin = at % data.size();
    const std::size_t most = std::min<std::size_t>(data.size() - begin, 1 + random() % data.size());
    return std::pair(begin, most);
  };
  std::array<std::uint64_t, 2> sent{};
  std::array<std::uint64_t, 2> received{};
  const Clock::time_point limit = Clock::now() + std::chrono::seconds(60);
  while ((received[0] < total || received[1] < total) && Clock::now() < limit) {
    for (std::size_t end = 0; end < 2; ++end) {
      if (sent[end] < total) {
        const auto [begin, most] = part(sent[end]);
        const auto bytes = std::span(data).subspan(begin, most);
        const std::size_t header = random() % (bytes.size() + 1);
        sent[end] += sockets[end]->secure()->send(bytes.first(header), bytes.subspan(header)).bytes;
      } else {
        (void)sockets[end]->flush();
      }
      const auto [begin, most] = part(received[end]);
      const auto [bytes, error] = sockets[end]->receive(std::span(got).first(most));
      ASSERT_TRUE(bytes > 0 || error == EAGAIN) << error;
      ASSERT_TRUE(
          std::ranges::equal(std::span(got).first(bytes), std::span(data).subspan(begin, bytes)));
      received[end] += bytes;
    }
  }
  EXPECT_EQ(received, sent);
}

TEST(SecureStream, ThreadsKeepTheOrderOfTheBytes) {
  expect_bytes_in_order(encrypted_sockets("127.0.0.1", Encryption::by_key(1000)), 3);
}

/// The kernel decrypts more than a caller with little room asks for.
TEST(SecureStream, ReportsInputThatTheKernelHasDecrypted) {
  if (!tcp::kernel_offers_tls()) GTEST_SKIP() << "the kernel of this host cannot encrypt";
  auto [near, far] = encrypted_sockets(
      "127.0.0.1", Encryption::by_key(Encryption::kRecordsPerKey, KernelTls::always));
  for (const Socket* end : {&near, &far}) end->secure()->use(std::make_shared<Outbox>());
  const Bytes bytes(63, std::byte{1});
  constexpr int kRounds = 3;
  for (int i = 0; i < kRounds; ++i) {
    ASSERT_EQ(near.send(bytes).bytes, bytes.size());
    ASSERT_TRUE(near.secure()->replace_key());
    ASSERT_EQ(near.flush(), 0);
  }
  Bytes got(bytes.size());
  for (int i = 0; i < kRounds; ++i) {
    pollfd entry = {far.descriptor(), POLLIN, 0};
    ASSERT_TRUE(far.has_input() || ::poll(&entry, 1, 20'000) == 1) << i;
    ASSERT_EQ(far.receive(got).bytes, bytes.size()) << i;
    EXPECT_EQ(got, bytes);
  }
}

TEST(SecureStream, TheKernelKeepsTheOrderOfTheBytes) {
  if (!tcp::kernel_offers_tls()) GTEST_SKIP() << "the kernel of this host cannot encrypt";
  const auto kernel = Encryption::by_key(100, KernelTls::always);
  constexpr std::size_t kTotal = std::size_t{8} << 20;  // Kernels that can encrypt may be emulated.
  expect_bytes_in_order(encrypted_sockets("127.0.0.1", kernel), 0, kTotal);
  expect_bytes_in_order(encrypted_sockets("127.0.0.1", kernel, Encryption::by_key(100)), 3, kTotal);
}

/// Without the threads of an outbox, the kernel encrypts; with them, MCCL does.
TEST(SecureStream, TheKernelEncryptsIfThereAreNoThreads) {
  const auto encryption =
      Encryption::by_key(Encryption::kRecordsPerKey, KernelTls::without_threads);
  for (const std::size_t threads : {0, 1}) {
    const SocketPair ends = encrypted_sockets("127.0.0.1", encryption);
    ends.first.secure()->use(std::make_shared<Outbox>(threads));
    EXPECT_EQ(ends.first.secure()->is_in_kernel(), threads == 0 && tcp::kernel_offers_tls());
  }
}

/// If the child of a fork sent TLS's closing message, it would end its parent's stream.
TEST(SecureStream, TheChildOfAForkSendsNothing) {
  auto [near, far] = encrypted_sockets("127.0.0.1", Encryption::by_key());
  const pid_t child = ::fork();
  if (child == 0) {
    near.close();
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  pollfd entry = {far.descriptor(), POLLIN, 0};
  EXPECT_EQ(::poll(&entry, 1, 0), 0);
}

}  // namespace
}  // namespace mccl::transport
