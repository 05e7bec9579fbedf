#include "rendezvous/meeting/mesh.h"

#include <netinet/tcp.h>

#include <thread>

#include "rendezvous/connections/wire.h"
#include "rendezvous/meeting/mesh_job.h"
#include "support/free_places.h"
#include "transport/tcp/listener.h"

namespace mccl::rendezvous {
namespace {

using ::testing::HasSubstr;
using transport::tcp::Address;
using transport::tcp::Listener;
using transport::tcp::Socket;

constexpr transport::LinkKey kControl = {};

Socket connect_to(const Endpoint& endpoint) {
  const Address to = *Address::parse_numeric(endpoint.addresses.front(), endpoint.port);
  Socket socket = Socket::stream(to.family());
  transport::tcp::start_connect(socket, to, nullptr);
  EXPECT_TRUE(wait_for(socket.descriptor(), POLLOUT, in(seconds(20))));
  EXPECT_EQ(socket.take_error(), 0);
  return socket;
}

void expect_all_pairs_carry(Job& job, int size) {
  for (int a = 0; a < size; ++a) {
    for (int b = a + 1; b < size; ++b) {
      const LinkEvent* at_a = job[a].event_of(b);
      const LinkEvent* at_b = job[b].event_of(a);
      ASSERT_TRUE(at_a && at_b && at_a->link && at_b->link) << a << " and " << b;
      const std::string text = std::to_string(a) + " to " + std::to_string(b);
      // The acceptor writes first, so its bytes directly follow the handshake.
      ASSERT_NO_FATAL_FAILURE(expect_carries(*at_b->link, *at_a->link, text + " back"));
      ASSERT_NO_FATAL_FAILURE(expect_carries(*at_a->link, *at_b->link, text));
    }
  }
}

class MeshOfSize : public ::testing::TestWithParam<int> {};

TEST_P(MeshOfSize, EveryPairMeets) {
  const int size = GetParam();
  Job job(size);
  job.exchange_endpoints();
  for (int a = 0; a < size; ++a) {
    for (int b = a + 1; b < size; ++b) job[a].mesh->dial(WorldRank(b), kControl, in(seconds(20)));
  }
  const auto expected = static_cast<std::size_t>(size * (size - 1));
  ASSERT_NO_FATAL_FAILURE(job.drive_until([&] { return job.event_count() == expected; }));
  expect_all_pairs_carry(job, size);
  for (int rank = 0; rank < size; ++rank) EXPECT_EQ(job[rank].refused, 0);
}

INSTANTIATE_TEST_SUITE_P(Sizes, MeshOfSize, ::testing::Values(2, 3, 5, 8));

TEST(Mesh, DeliversTheKeyOfEachDialedLink) {
  Job job(2);
  job.exchange_endpoints();
  const std::vector<transport::LinkKey> keys = {
      {7, transport::Purpose::collective, 0},
      {7, transport::Purpose::collective, 1},
      {0xffffffffffffffff, transport::Purpose::point_to_point, 255},
      {0, transport::Purpose::control, 0}};
  for (const transport::LinkKey& key : keys) job[1].mesh->dial(WorldRank(0), key, in(seconds(20)));
  ASSERT_NO_FATAL_FAILURE(job.drive_until([&] { return job.event_count() == 2 * keys.size(); }));
  for (const transport::LinkKey& key : keys) {
    for (int rank : {0, 1}) {
      EXPECT_EQ(std::count_if(job[rank].events.begin(), job[rank].events.end(),
                              [&](const LinkEvent& event) { return event.key == key; }),
                1);
    }
  }
}

TEST(Mesh, BytesRightAfterTheHandshakeAreNotLost) {
  Job job(2);
  job.exchange_endpoints();
  job[0].mesh->dial(WorldRank(1), kControl, in(seconds(20)));
  // The acceptor writes before the dialer has read the end of the handshake.
  const std::string text = "hello at once";
  while (job[0].events.empty()) {
    job[0].mesh->progress(job[0].events);
    const bool spoken = !job[1].events.empty();
    job[1].mesh->progress(job[1].events);
    if (!spoken && !job[1].events.empty()) {
      ASSERT_TRUE(job[0].events.empty());
      job[1].events[0].link->write(std::as_bytes(std::span(text)));
    }
  }
  ASSERT_TRUE(job[0].events[0].link);
  transport::Link& link = *job[0].events[0].link;
  std::span<const std::byte> seen;
  while ((seen = link.peek(text.size())).empty())
    ASSERT_TRUE(wait_for(link.descriptor(), POLLIN, in(seconds(20))));
  EXPECT_EQ(text_of(seen), text);
}

TEST(Mesh, IgnoresNoiseAtTheListener) {
  Job job(4);
  job.exchange_endpoints();
  std::vector<Socket> strangers;
  const std::string_view noises[] = {
      "GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02", "MCCX", "MCCL\x01", "", "MCCL\x07\x07"};
  std::size_t heard = 0;
  for (int rank = 0; rank < 4; ++rank) {
    for (const std::string_view noise : noises) {
      strangers.push_back(connect_to(job[rank].mesh->endpoint()));
      if (!noise.empty()) ::send(strangers.back().descriptor(), noise.data(), noise.size(), 0);
    }
    // Silence and a partial hello may wait. The other four kinds are refused at once.
    heard += 4;
  }
  for (int a = 0; a < 4; ++a) {
    for (int b = a + 1; b < 4; ++b) job[a].mesh->dial(WorldRank(b), kControl, in(seconds(20)));
  }
  ASSERT_NO_FATAL_FAILURE(job.drive_until([&] {
    std::size_t refused = 0;
    for (int rank = 0; rank < 4; ++rank) refused += static_cast<std::size_t>(job[rank].refused);
    return job.event_count() == 12 && refused == heard;
  }));
  expect_all_pairs_carry(job, 4);
}

TEST(Mesh, AFloodOfSilentConnectionsDelaysNothing) {
  Job job(2);
  job.exchange_endpoints();
  std::vector<Socket> strangers;
  for (int i = 0; i < 300; ++i) {
    strangers.push_back(connect_to(job[1].mesh->endpoint()));
    job[1].mesh->progress(job[1].events);
  }
  std::vector<pollfd> watched;
  job[1].mesh->watch(watched);
  EXPECT_LE(watched.size(), 129u);
  EXPECT_GE(job[1].refused, 300 - 129);
  job[0].mesh->dial(WorldRank(1), kControl, in(seconds(20)));
  ASSERT_NO_FATAL_FAILURE(job.drive_until([&] { return job.event_count() == 2; }));
  expect_all_pairs_carry(job, 2);
}

TEST(Mesh, RefusesAPeerWithAnotherKey) {
  Job job(3);
  job.exchange_endpoints();
  Job outside(2, loopback_config(), "another key");
  std::vector<Endpoint> endpoints = outside.endpoints();
  endpoints[1] = job[1].mesh->endpoint();
  outside[0].mesh->set_endpoints(endpoints);
  outside[0].mesh->dial(WorldRank(1), kControl, in(milliseconds(400)));
  job[0].mesh->dial(WorldRank(1), kControl, in(seconds(20)));
  job.drive_beside(outside);
  ASSERT_NO_FATAL_FAILURE(
      job.drive_until([&] { return job.event_count() == 2 && !outside[0].events.empty(); }));
  EXPECT_GE(job[1].refused, 1);
  EXPECT_EQ(outside[0].events[0].link, nullptr);
  EXPECT_THAT(outside[0].events[0].reason, HasSubstr("that every rank has the same MCCL_JOB_KEY"));
  EXPECT_THAT(outside[0].events[0].reason, HasSubstr("no firewall blocks that address"));
  ASSERT_TRUE(job[0].event_of(1) && job[0].event_of(1)->link);
}

TEST(Mesh, SettingsThatDifferEndTheDialAtOnceOnBothSides) {
  Job job(2);
  MeshOptions other = job.options(1, loopback_config(), nullptr);
  other.config.chunk_bytes = 2;
  job.join(std::move(other));
  job.exchange_endpoints();
  job[0].mesh->dial(WorldRank(1), kControl, in(std::chrono::hours(1)));
  ASSERT_NO_FATAL_FAILURE(job.drive_until([&] { return job.event_count() == 2; }));
  for (const int rank : {0, 1}) {
    const LinkEvent* event = job[rank].event_of(1 - rank);
    ASSERT_TRUE(event);
    EXPECT_EQ(event->link, nullptr);
    EXPECT_EQ(event->key, kControl);
    EXPECT_THAT(event->reason, HasSubstr("chunk_bytes"));
    EXPECT_THAT(event->reason, HasSubstr("rank 0 has 4"));
    EXPECT_THAT(event->reason, HasSubstr("rank 1 has 2"));
    EXPECT_EQ(job[rank].refused, 0);
  }
}

TEST(Mesh, TheTimeoutListsTheAddressesTried) {
  Job job(2, loopback_config("127.0.0.1,127.0.0.2"));
  const std::vector<Endpoint> endpoints = job.endpoints();
  job[0].mesh->set_endpoints(endpoints);
  job.leave(1);
  job[0].mesh->dial(WorldRank(1), kControl, in(milliseconds(300)));
  ASSERT_NO_FATAL_FAILURE(job.drive_until([&] { return job.event_count() == 1; }));
  const LinkEvent* event = job[0].event_of(1);
  ASSERT_TRUE(event);
  EXPECT_EQ(event->link, nullptr);
  const std::string port = std::to_string(endpoints[1].port);
  EXPECT_THAT(event->reason, HasSubstr("rank 0 could not connect to rank 1"));
  EXPECT_THAT(event->reason, HasSubstr("127.0.0.1:" + port));
  EXPECT_THAT(event->reason, HasSubstr("127.0.0.2:" + port));
  EXPECT_THAT(event->reason, HasSubstr("Connection refused"));
  EXPECT_THAT(event->reason, HasSubstr("firewall"));
  EXPECT_THAT(event->reason, HasSubstr("MCCL_LISTEN_ADDR"));
  EXPECT_THAT(event->reason, HasSubstr("MCCL_IFNAME"));
  EXPECT_EQ(job[0].mesh->next_deadline(), Clock::time_point::max());
}

TEST(Mesh, APeerThatComesLateIsFound) {
  Config config = loopback_config();
  config.port_base = support::free_places(1).front().front().port - 1;
  Job job(2, config);
  const std::vector<Endpoint> endpoints = job.endpoints();
  job[0].mesh->set_endpoints(endpoints);
  job.leave(1);
  job[0].mesh->dial(WorldRank(1), kControl, in(seconds(20)));
  for (int i = 0; i < 3; ++i) job[0].mesh->progress(job[0].events);
  ASSERT_TRUE(job[0].events.empty());
  job.join(1, config);
  ASSERT_NO_FATAL_FAILURE(job.drive_until([&] { return job.event_count() == 2; }));
  expect_all_pairs_carry(job, 2);
}

TEST(Mesh, SkipsAnAddressOfAnotherRank) {
  Job job(3);
  const int port = support::free_places(1).front().front().port;
  Config first = loopback_config("127.0.0.2");
  first.port_base = port - 1;
  job.join(1, first);
  Config same_port = loopback_config("127.0.0.1");
  same_port.port_base = port - 2;
  job.join(2, same_port);
  std::vector<Endpoint> endpoints = job.endpoints();
  endpoints[1].addresses = {"127.0.0.1", "127.0.0.2"};
  endpoints[1].listed = false;
  endpoints[1].host = "elsewhere";
  job[0].mesh->set_endpoints(endpoints);
  job[0].mesh->dial(WorldRank(1), kControl, in(seconds(20)));
  ASSERT_NO_FATAL_FAILURE(job.drive_until([&] { return job.event_count() == 2; }));
  ASSERT_TRUE(job[0].event_of(1) && job[1].event_of(0));
  EXPECT_THAT(job[0].event_of(1)->link->description(), HasSubstr("-> 127.0.0.2:"));
  EXPECT_EQ(job[2].refused, 0);
}

TEST(Mesh, AnUnresponsiveAddressDelaysNoOtherRank) {
  Job job(2, loopback_config("127.0.0.2"));
  // Listens elsewhere than 127.0.0.1, where another process may hold the port.
  const Listener mute(*Address::parse_numeric("127.0.0.3", job[1].mesh->endpoint().port), 0);
  std::vector<Endpoint> endpoints = job.endpoints();
  endpoints[1].addresses = {"127.0.0.3", "127.0.0.2"};
  endpoints[1].listed = false;
  endpoints[1].host = "elsewhere";
  job[0].mesh->set_endpoints(endpoints);
  job[0].mesh->dial(WorldRank(1), kControl, in(seconds(20)));
  ASSERT_NO_FATAL_FAILURE(job.drive_until([&] { return job.event_count() == 2; }));
  EXPECT_THAT(job[0].event_of(1)->link->description(), HasSubstr("-> 127.0.0.2:"));
}

TEST(Mesh, RefusesToDialItselfAndTwoEndpointsOfOneRank) {
  Job job(2);
  job.exchange_endpoints();
  EXPECT_THROW(job[0].mesh->dial(WorldRank(0), kControl, in(seconds(1))), InvalidArgument);
  std::vector<Endpoint> twice = {job[0].mesh->endpoint(), job[0].mesh->endpoint()};
  EXPECT_THROW(job[0].mesh->set_endpoints(twice), InvalidArgument);
}

TEST(Mesh, AnAbandonedMeshHoldsNoDescriptor) {
  Job job(2);
  job.exchange_endpoints();
  job[0].mesh->dial(WorldRank(1), kControl, in(seconds(20)));
  job[0].mesh->progress(job[0].events);
  job[0].mesh->abandon();
  std::vector<pollfd> watched;
  job[0].mesh->watch(watched);
  EXPECT_TRUE(watched.empty());
  job[0].mesh->progress(job[0].events);
  EXPECT_TRUE(job[0].events.empty());
}

#ifdef TCP_USER_TIMEOUT
TEST(Mesh, OnlyTheControlConnectionLimitsSilence) {
  Job job(2);
  job.exchange_endpoints();
  for (const transport::Purpose purpose :
       {transport::Purpose::control, transport::Purpose::collective,
        transport::Purpose::point_to_point})
    job[0].mesh->dial(WorldRank(1), {1, purpose, 0}, in(seconds(20)));
  ASSERT_NO_FATAL_FAILURE(job.drive_until([&] { return job.event_count() == 6; }));
  for (const int rank : {0, 1}) {
    for (const LinkEvent& event : job[rank].events) {
      int limit = -1;
      socklen_t length = sizeof limit;
      ASSERT_EQ(
          ::getsockopt(event.link->descriptor(), IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, &length),
          0);
      // A data connection may stay full as long as its reader computes, so it has no such limit.
      const int twice_the_interval = 2 * static_cast<int>(1000 * Config{}.liveness_interval);
      EXPECT_EQ(limit, event.key.purpose == transport::Purpose::control ? twice_the_interval : 0);
    }
  }
}
#endif

TEST(Mesh, RanksMayBeThreadsOfOneProcess) {
  constexpr int kSize = 4;
  Job job(kSize);
  job.exchange_endpoints();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kSize; ++rank) {
    threads.emplace_back([&job, rank] {
      Member& member = job[rank];
      for (int peer = rank + 1; peer < kSize; ++peer)
        member.mesh->dial(WorldRank(peer), kControl, in(seconds(30)));
      const Clock::time_point limit = in(seconds(40));
      while (member.events.size() < kSize - 1 && Clock::now() < limit) {
        member.mesh->progress(member.events);
        std::vector<pollfd> descriptors;
        member.mesh->watch(descriptors);
        if (member.events.size() < kSize - 1) {
          ::poll(descriptors.data(), descriptors.size(),
                 milliseconds_until(std::min(limit, member.mesh->next_deadline())));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  expect_all_pairs_carry(job, kSize);
}

}  // namespace
}  // namespace mccl::rendezvous
