#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "base/open_files.h"
#include "rendezvous/connections/accepting.h"
#include "transport/tcp/listener.h"

namespace mccl::rendezvous {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;
using transport::tcp::Address;
using transport::tcp::Listener;
using transport::tcp::Socket;

const Clock::time_point kStart = Clock::time_point(1h);

int let_in(Turnstile& turnstile, Clock::time_point now, int waiting) {
  int admitted = 0;
  for (; admitted < waiting && turnstile.open(now); ++admitted) turnstile.admitted();
  return admitted;
}

TEST(Turnstile, AdmitsAllWithoutALimit) {
  Turnstile turnstile(Log(0, LogLevel::off), {});
  EXPECT_EQ(let_in(turnstile, kStart, 100'000), 100'000);
  EXPECT_EQ(turnstile.opens_at(), Clock::time_point::max());
  turnstile.limit({64, 1000}, kStart);
  EXPECT_EQ(let_in(turnstile, kStart, 100'000), 64);
}

TEST(Turnstile, AdmitsAFloodAtItsRateInFewWakeUps) {
  Turnstile turnstile(Log(0, LogLevel::off), {});
  turnstile.limit({64, 1000}, kStart);
  Clock::time_point now = kStart;
  int admitted = 0, looks = 0;
  while (now < kStart + 10s) {
    admitted += let_in(turnstile, now, 100'000);
    ++looks;
    ASSERT_GT(turnstile.opens_at(), now);
    now = turnstile.opens_at();
  }
  EXPECT_LE(admitted, 64 + 10'000);
  EXPECT_GE(admitted, 9'900);
  EXPECT_LE(looks, 1'001);
}

TEST(Turnstile, RefillsDuringAPause) {
  Turnstile turnstile(Log(0, LogLevel::off), {});
  turnstile.limit({64, 1000}, kStart);
  EXPECT_EQ(let_in(turnstile, kStart, 64), 64);
  EXPECT_EQ(let_in(turnstile, kStart + 1h, 1'000), 64);
}

TEST(Turnstile, WarnsOfAShortageOfDescriptorsOnceAMinute) {
  Turnstile turnstile(Log(0, LogLevel::warn), {});
  CaptureStderr();
  Clock::time_point now = kStart;
  for (int i = 0; i < 100; ++i) {
    turnstile.accept_gave(EMFILE, now);
    EXPECT_FALSE(turnstile.open(now));
    EXPECT_GT(turnstile.opens_at(), now);
    now = turnstile.opens_at();
    EXPECT_TRUE(turnstile.open(now));
  }
  const std::string once = GetCapturedStderr();
  EXPECT_EQ(std::count(once.begin(), once.end(), '\n'), 1) << once;
  EXPECT_THAT(once, HasSubstr("ulimit -n"));
  EXPECT_EQ(once.find("ulimit"), once.rfind("ulimit")) << once;
  EXPECT_THAT(once, Not(HasSubstr("end other programs")));
  CaptureStderr();
  turnstile.accept_gave(0, now);
  turnstile.accept_gave(ENFILE, now);
  EXPECT_EQ(GetCapturedStderr(), "") << "a stranger can cause a shortage again and again";
  CaptureStderr();
  turnstile.accept_gave(0, now);
  turnstile.accept_gave(ENFILE, now + 1min);
  EXPECT_THAT(GetCapturedStderr(), AllOf(HasSubstr("fs.file-max"), HasSubstr("and 1 more")));
}

TEST(Turnstile, AdvisesOnAShortageOfMemory) {
  Turnstile turnstile(Log(0, LogLevel::warn), {});
  CaptureStderr();
  turnstile.accept_gave(ENOMEM, kStart);
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("; end other programs, or give this program more"));
}

TEST(Turnstile, LogsTheNumberOfStrangersAtIntervals) {
  int counted = 0;
  Turnstile turnstile(Log(0, LogLevel::warn), [&] { ++counted; });
  CaptureStderr();
  for (int i = 0; i < 500; ++i)
    turnstile.turned_away(LogLevel::warn, Turnstile::Who::stranger, "10.0.0.9:1", "it knows no key",
                          kStart + i * 100ms);
  const std::string once = GetCapturedStderr();
  EXPECT_EQ(std::count(once.begin(), once.end(), '\n'), 1) << once;
  EXPECT_THAT(once, HasSubstr("10.0.0.9:1: it knows no key"));
  // They do not hide why a member was refused.
  CaptureStderr();
  turnstile.turned_away(LogLevel::warn, Turnstile::Who::member, "10.0.0.7:1", "its settings differ",
                        kStart + 20s);
  turnstile.turned_away(LogLevel::warn, Turnstile::Who::twin, "10.0.0.6:1", "it has this rank",
                        kStart + 20s);
  EXPECT_THAT(GetCapturedStderr(),
              AllOf(HasSubstr("its settings differ"), HasSubstr("it has this rank")));
  CaptureStderr();
  turnstile.turned_away(LogLevel::info, Turnstile::Who::stranger, "10.0.0.8:1", "noise",
                        kStart + 2min);
  turnstile.turned_away(LogLevel::warn, Turnstile::Who::stranger, "10.0.0.9:1", "it knows no key",
                        kStart + 2min);
  const std::string later = GetCapturedStderr();
  EXPECT_THAT(later, HasSubstr("and 499 more"));
  EXPECT_EQ(std::count(later.begin(), later.end(), '\n'), 1) << later;
  EXPECT_EQ(counted, 504);
}

/// Opens connections from this process that send nothing.
std::vector<Socket> flood(const Listener& listener, int count, const Address* from = nullptr) {
  std::vector<Socket> strangers;
  for (int i = 0; i < count; ++i) {
    strangers.push_back(Socket::stream(AF_INET));
    transport::tcp::start_connect(strangers.back(), listener.address(), from);
  }
  return strangers;
}

std::vector<Listener> one_listener() {
  std::vector<Listener> listeners;
  listeners.emplace_back(*Address::parse_numeric("127.0.0.1", 0), 0);
  return listeners;
}

std::size_t count_watched(const Acceptor& acceptor) {
  std::vector<pollfd> watched;
  acceptor.watch(watched);
  return watched.size();
}

TEST(Acceptor, DelaysAFloodOfConnectionsAfterTheMeeting) {
  raise_open_files_limit();
  std::vector<Listener> listeners = one_listener();
  const std::vector<Socket> strangers = flood(listeners[0], 1100);
  Acceptor acceptor(std::move(listeners), {0, 2, "key", {}}, Log(0, LogLevel::off), {});
  acceptor.everyone_is_here({}, kStart);
  std::vector<Newcomer> newcomers;
  EXPECT_EQ(count_watched(acceptor), 1u) << "the listener";
  for (int i = 0; i < 20; ++i) acceptor.advance(kStart, newcomers);  // accepts one batch per call
  EXPECT_EQ(count_watched(acceptor), 128u) << "guests, and no listener";
  EXPECT_GT(acceptor.next_deadline(), kStart);
  EXPECT_LT(acceptor.next_deadline(), kStart + 1s);
  for (int i = 0; i < 20; ++i) acceptor.advance(kStart + 1s, newcomers);
  EXPECT_EQ(count_watched(acceptor), 129u) << "guests, and the listener again";
}

TEST(Acceptor, AFloodFromOneAddressDoesNotBlockOthers) {
  std::vector<Listener> listeners = one_listener();
  const Address elsewhere = *Address::parse_numeric("127.0.0.2", 0);
  const std::vector<Socket> peer = flood(listeners[0], 1, &elsewhere);
  const std::vector<Socket> strangers = flood(listeners[0], 400);
  Acceptor acceptor(std::move(listeners), {0, 2, "key", {}}, Log(0, LogLevel::off), {});
  std::vector<Newcomer> newcomers;
  for (int i = 0; i < 10; ++i) acceptor.advance(kStart, newcomers);
  EXPECT_EQ(count_watched(acceptor), 129u);
  char byte = 0;
  const auto is_open = [&](const Socket& socket) {
    return ::recv(socket.descriptor(), &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
  };
  EXPECT_TRUE(is_open(peer[0]));
  EXPECT_EQ(std::count_if(strangers.begin(), strangers.end(), is_open), 127);
}

/// The strangers of this flood send the first message, so they have got further than a peer that
/// has sent nothing yet.
TEST(Acceptor, AFloodThatBeginsTheHandshakeDoesNotBlockASlowPeer) {
  std::vector<Listener> listeners = one_listener();
  const Handshake stranger = Handshake::dialer({1, 2, "another key", {}}, 0, {});
  const auto begin = [&](const std::vector<Socket>& sockets) {
    for (const Socket& socket : sockets) (void)socket.send(stranger.output());
  };
  const std::vector<Socket> before = flood(listeners[0], 200);
  const Address elsewhere = *Address::parse_numeric("127.0.0.2", 0);
  const std::vector<Socket> peer = flood(listeners[0], 1, &elsewhere);
  const std::vector<Socket> after = flood(listeners[0], 200);
  begin(before);
  begin(after);
  Acceptor acceptor(std::move(listeners), {0, 2, "key", {}}, Log(0, LogLevel::off), {});
  std::vector<Newcomer> newcomers;
  for (int i = 0; i < 10; ++i) acceptor.advance(kStart, newcomers);
  char byte = 0;
  EXPECT_LT(::recv(peer[0].descriptor(), &byte, 1, MSG_DONTWAIT), 0) << "it was turned away";
  EXPECT_EQ(errno, EAGAIN);
}

TEST(Acceptor, DoesNotLimitConnectionsDuringTheMeeting) {
  std::vector<Listener> listeners;
  listeners.emplace_back(*Address::parse_numeric("127.0.0.1", 0), 0);
  const std::vector<Socket> strangers = flood(listeners[0], 100);
  Acceptor acceptor(std::move(listeners), {0, 2, "key", {}}, Log(0, LogLevel::off), {});
  std::vector<Newcomer> newcomers;
  acceptor.advance(kStart, newcomers);
  acceptor.advance(kStart, newcomers);
  std::vector<pollfd> watched;
  acceptor.watch(watched);
  EXPECT_EQ(watched.size(), 101u);
}

}  // namespace
}  // namespace mccl::rendezvous
