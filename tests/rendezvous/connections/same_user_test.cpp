// Tests handshakes between processes without a job key.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "mccl/error.h"
#include "rendezvous/connections/handshake.h"

namespace mccl::rendezvous {
namespace {

using State = Handshake::State;
using ::testing::HasSubstr;

constexpr std::uint16_t kPort = 29500;

Party serving(const std::string& job_key = {}) {
  const std::vector<std::string> folders = private_folders();
  return {.rank = 0,
          .size = 2,
          .job_key = job_key,
          .key_file = std::make_shared<const KeyFile>(folders),
          .port = kPort};
}

Party visiting(const std::string& job_key = {}, Keyless keyless = Keyless::same_user) {
  return {.rank = 1, .size = 2, .job_key = job_key, .keyless = keyless, .port = kPort};
}

void carry(Handshake& from, Handshake& to) {
  while (!from.output().empty() && to.wanted() > 0) {
    const std::size_t n = std::min(from.output().size(), to.wanted());
    const Bytes bytes(from.output().begin(), from.output().begin() + static_cast<long>(n));
    from.sent(n);
    to.feed(bytes);
  }
}

struct Ends {
  Handshake dialer;
  Handshake acceptor;
};

Ends meet(Party visitor, Party server) {
  Ends ends{Handshake::dialer(std::move(visitor), 0, {}), Handshake::acceptor(std::move(server))};
  for (int message = 0; message < 4; ++message) {
    carry(ends.dialer, ends.acceptor);
    carry(ends.acceptor, ends.dialer);
  }
  return ends;
}

void expect_refusal(const Ends& ends, const std::string& reason) {
  EXPECT_EQ(ends.dialer.state(), State::refused);
  EXPECT_EQ(ends.dialer.refusal(), Refusal::proof);
  EXPECT_THAT(ends.dialer.reason(), HasSubstr(reason));
  EXPECT_FALSE(ends.acceptor.proven());
}

TEST(SameUser, ProcessesOfOneUserAndHostMeetWithoutAKey) {
  const Ends ends = meet(visiting(), serving());
  EXPECT_EQ(ends.dialer.state(), State::done) << ends.dialer.reason();
  EXPECT_EQ(ends.acceptor.state(), State::done) << ends.acceptor.reason();
  EXPECT_EQ(ends.acceptor.peer(), 1);
}

TEST(SameUser, AMissingFileIsRefusedWithTheCommandThatMakesAKey) {
  Party server = serving();
  ASSERT_EQ(::unlink(server.key_file->path().c_str()), 0);
  expect_refusal(meet(visiting(), std::move(server)),
                 "export MCCL_JOB_KEY=$(openssl rand -hex 32)");
}

TEST(SameUser, TheServerRefusesAClientWithoutProof) {
  // A process that does not try the file proves only that it knows the empty key.
  Party server = serving();
  Handshake acceptor = Handshake::acceptor(std::move(server));
  Handshake open =
      Handshake::acceptor({.rank = 0, .size = 2, .keyless = Keyless::anyone, .port = kPort});
  Handshake dialer = Handshake::dialer(visiting({}, Keyless::anyone), 0, {});
  const Bytes hello(dialer.output().begin(), dialer.output().end());
  for (Handshake* each : {&acceptor, &open}) {
    for (std::size_t sent = 0; sent < hello.size() && each->wanted() > 0;) {
      const std::size_t n = std::min(each->wanted(), hello.size() - sent);
      each->feed(std::span(hello).subspan(sent, n));
      sent += n;
    }
  }
  dialer.sent(hello.size());
  acceptor.sent(acceptor.output().size());
  carry(open, dialer);
  carry(dialer, acceptor);
  EXPECT_EQ(acceptor.state(), State::refused);
  EXPECT_EQ(acceptor.refusal(), Refusal::proof);
  EXPECT_THAT(acceptor.reason(), HasSubstr("same user on the same host"));
  EXPECT_TRUE(acceptor.output().empty()) << "a stranger gets no answer";
}

TEST(SameUser, AConnectionThatIsPassedOnToAnotherPortIsRefused) {
  Party visitor = visiting();
  visitor.port = kPort + 1;
  const Ends ends = meet(std::move(visitor), serving());
  EXPECT_EQ(ends.acceptor.refusal(), Refusal::proof);
  EXPECT_FALSE(ends.acceptor.proven() || ends.dialer.proven());
}

TEST(SameUser, BothSidesRefuseIfOnlyOneHasAKey) {
  expect_refusal(meet(visiting("secret"), serving()),
                 "it has no job key, but rank 1 has a job key");
  expect_refusal(meet(visiting(), serving("secret")), "it requires a job key");
}

TEST(SameUser, AClientThatRequiresProofRefusesAnOpenServer) {
  const Party open = {.rank = 0, .size = 2, .keyless = Keyless::anyone, .port = kPort};
  expect_refusal(meet(visiting(), open), "MCCL_REQUIRE_KEY=0");
  const Ends ends = meet(visiting({}, Keyless::anyone), open);
  EXPECT_EQ(ends.dialer.state(), State::done) << "both accept anyone";
}

TEST(SameUser, AServerWithoutKeyAndFileAcceptsNoConnection) {
  EXPECT_THROW(Handshake::acceptor({.rank = 0, .size = 2, .port = kPort}), InvalidArgument);
}

TEST(SameUser, AHostileNameOfAFileIsRefused) {
  for (const std::string& name :
       {std::string("../../../../../../etc/hostname/x"), std::string(kKeyFileLetters, '\0'),
        std::string(kKeyFileLetters, '0'), std::string(kKeyFileLetters, '/')}) {
    ASSERT_EQ(name.size(), kKeyFileLetters);
    Handshake dialer = Handshake::dialer(visiting(), 0, {});
    Handshake acceptor = Handshake::acceptor(serving());
    carry(dialer, acceptor);
    Bytes challenge(acceptor.output().begin(), acceptor.output().end());
    std::ranges::copy(bytes_of(name), challenge.end() - static_cast<long>(kKeyFileLetters));
    for (std::size_t sent = 0; sent < challenge.size() && dialer.wanted() > 0;) {
      const std::size_t n = std::min(dialer.wanted(), challenge.size() - sent);
      dialer.feed(std::span(challenge).subspan(sent, n));
      sent += n;
    }
    EXPECT_EQ(dialer.refusal(), Refusal::proof);
    EXPECT_TRUE(dialer.output().empty());
  }
}

}  // namespace
}  // namespace mccl::rendezvous
