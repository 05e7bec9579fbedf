// Tests that links continue over new connections when their connections break.
#include "rendezvous/meeting/repairs.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "rendezvous/meeting/mesh_job.h"
#include "transport/tcp/kernel_tls.h"
#include "transport/tcp_pair.h"

namespace mccl::rendezvous {
namespace {

using ::testing::HasSubstr;
using transport::Link;
using transport::LinkClosed;
using Bytes = std::vector<std::byte>;

std::byte byte_at(std::uint64_t at) { return static_cast<std::byte>(at * 2654435761u >> 13); }

/// Resets the connection of a link: both ends get an error. Bytes that have arrived at this end and
/// were not read are lost, so a test uses it only at an end to which nothing is sent.
void reset_connection(const Link& link) {
  sockaddr none = {};
  none.sa_family = AF_UNSPEC;
  if (::connect(link.descriptor(), &none, sizeof none) == 0) return;
  // If the kernel encrypts, only an administrator can reset the connection.
  sockaddr_in own = {};
  socklen_t size = sizeof own;
  ASSERT_EQ(::getsockname(link.descriptor(), reinterpret_cast<sockaddr*>(&own), &size), 0);
  const std::string command =
      fmt::format("ss --kill sport = :{} >/dev/null 2>&1", ntohs(own.sin_port));
  ASSERT_EQ(std::system(command.c_str()), 0);
}

/// Two meshes and one link between them, which rank 1 dialled.
struct Pair {
  explicit Pair(const Config& config) : job(2, config) {
    for (const int rank : {0, 1}) {
      job.join(job.options(rank, config, nullptr));
    }
    job.exchange_endpoints();
    job[1].mesh->dial(WorldRank(0), {7, transport::Purpose::collective, 0}, in(seconds(20)));
    job.drive_until([&] { return job.event_count() == 2; });
    for (const int rank : {0, 1}) {
      links.push_back(std::move(job[rank].events.at(0).link));
      job[rank].mesh->everyone_is_here();
    }
  }
  ~Pair() { links.clear(); }

  /// Lets the meshes work, without sleeping, until `finished` returns true.
  void work_until(const std::function<bool()>& finished) {
    const Clock::time_point limit = in(seconds(120));
    for (std::vector<LinkEvent> events; !finished();) {
      ASSERT_LT(Clock::now(), limit);
      for (Member* member : {&job[0], &job[1]}) {
        if (member->mesh) member->mesh->progress(events);
      }
    }
  }

  /// Lets the meshes work until the link of the rank throws. Returns the error text.
  std::string error_of(int rank) {
    std::string error;
    work_until([&] {
      try {
        links[rank]->write(std::as_bytes(std::span("x", 1)));
        links[rank]->release();
        (void)links[rank]->peek(1);
      } catch (const LinkClosed& closed) {
        error = closed.what();
      }
      return !error.empty();
    });
    return error;
  }

  Job job;
  std::vector<std::unique_ptr<Link>> links;  ///< Indexed by rank.
};

Config repairing(double seconds = 20) {
  Config config = loopback_config();
  config.link_retry = seconds;
  return config;
}

/// Sends messages of random sizes, from the sender's own memory, over a link whose connection
/// breaks again and again.
void expect_stream(const Config& config, int sender) {
  constexpr std::uint64_t kTotal = std::uint64_t{24} << 20;
  Pair pair(config);
  Link& from = *pair.links[sender];
  Link& to = *pair.links[1 - sender];
  std::uint64_t sent = 0;
  std::uint64_t got = 0;
  int breaks = 0;
  Bytes message;
  std::size_t written = 0;
  unsigned random = 1;
  pair.work_until([&] {
    if (written == message.size()) {
      from.release();
      random = random * 1103515245 + 12345;
      message.assign(random % 5 == 0 ? random % 900'000 : random % 900, {});
      for (std::size_t i = 0; i < message.size(); ++i) message[i] = byte_at(sent + i);
      sent += message.size();
      written = 0;
    }
    if (got < kTotal) written += from.write(std::span(message).subspan(written));
    Bytes piece(300'000);
    const std::size_t n = to.read(piece);
    for (std::size_t i = 0; i < n; ++i) {
      if (piece[i] != byte_at(got + i)) {
        ADD_FAILURE() << "byte " << got + i << " is wrong after " << breaks << " breaks";
        return true;
      }
    }
    got += n;
    if (got > kTotal / 20 * (breaks + 1) && !from.is_broken()) {
      reset_connection(from);
      ++breaks;
    }
    return got >= kTotal;
  });
  EXPECT_GE(breaks, 10);
}

TEST(Repairs, AStreamContinuesIfTheDialerSends) { expect_stream(repairing(), 1); }
TEST(Repairs, AStreamContinuesIfTheAcceptorSends) { expect_stream(repairing(), 0); }
TEST(Repairs, AnEncryptedStreamContinues) {
  Config config = repairing();
  config.encryption = "on";
  expect_stream(config, 1);
}

TEST(Repairs, AStreamThatTheKernelEncryptsContinues) {
  if (!transport::tcp::kernel_offers_tls())
    GTEST_SKIP() << "the kernel of this host cannot encrypt";
  Config config = repairing();
  config.encryption = "on";
  config.kernel_tls = "on";
  expect_stream(config, 1);
}

TEST(Repairs, APeerThatHasEndedIsReportedWithinASecond) {
  Pair pair(repairing());
  const Bytes unread(1000);
  ASSERT_EQ(pair.links[1]->write(unread), unread.size());
  ASSERT_TRUE(wait_for(pair.links[0]->descriptor(), POLLIN, in(seconds(20))));
  pair.links[0].reset();  // The system resets the connection, because bytes are unread.
  pair.job[0].mesh.reset();
  const Clock::time_point before = Clock::now();
  EXPECT_THAT(pair.error_of(1), HasSubstr("no longer accepts connections"));
  EXPECT_LT(Clock::now() - before, seconds(5));
}

TEST(Repairs, ARestartedPeerIsNotTheOldOne) {
  Pair pair(repairing());
  Config config = repairing();
  config.port_base = pair.job[0].mesh->endpoint().port;
  reset_connection(*pair.links[0]);
  pair.links[0].reset();
  pair.job[0].mesh.reset();
  pair.job.join(0, config);
  pair.job[0].mesh->set_endpoints({pair.job[0].mesh->endpoint(), pair.job[1].mesh->endpoint()});
  pair.job[0].mesh->everyone_is_here();
  EXPECT_THAT(pair.error_of(1), HasSubstr("that rank no longer has the link"));
}

TEST(Repairs, HoldFewConnectionsForLinksThatThisRankDoesNotHave) {
  Repairs repairs({.self = {0, 2, "key", {}},
                   .patience = seconds(10),
                   .log = Log(0, LogLevel::off),
                   .listener_of = {},
                   .prepare = {},
                   .on_repaired = {}});
  std::vector<transport::tcp::Socket> ends;
  for (int i = 0; i < 65; ++i) {
    auto [near, far] = transport::tcp::connected_sockets("127.0.0.1");
    ends.push_back(std::move(far));
    repairs.accept({1, {77, transport::Purpose::repair, 0}, std::move(near), {}, {}});
  }
  const auto is_closed = [](const transport::tcp::Socket& end) {
    return transport::tcp::is_ready(end, POLLIN);
  };
  EXPECT_TRUE(is_closed(ends.front())) << "the oldest makes room for the newest";
  EXPECT_EQ(std::ranges::count_if(ends, is_closed), 1);
}

TEST(Repairs, APeerThatDoesNotAnswerIsGivenUpAfterTheSetTime) {
  Pair pair(repairing(0.3));
  const std::unique_ptr<Mesh> silent = std::move(pair.job[0].mesh);
  reset_connection(*pair.links[1]);
  EXPECT_THAT(pair.error_of(1), HasSubstr("no new connection could be made within"));
}

TEST(Repairs, ALinkEndsWithItsConnectionIfTheSettingIsZero) {
  Pair pair(repairing(0));
  reset_connection(*pair.links[1]);
  EXPECT_THAT(pair.error_of(1), HasSubstr("the peer reset the connection"));
}

TEST(Repairs, AnEndWithoutAnErrorIsNotRepaired) {
  Pair pair(repairing());
  pair.links[0].reset();
  EXPECT_THAT(pair.error_of(1), HasSubstr("the peer closed the connection"));
}

}  // namespace
}  // namespace mccl::rendezvous
