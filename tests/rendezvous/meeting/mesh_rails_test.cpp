// Tests the connections that meshes make for the addresses at which they listen.
#include "rendezvous/meeting/mesh_job.h"

namespace mccl::rendezvous {
namespace {

using ::testing::HasSubstr;
using transport::LinkKey;
using transport::tcp::Address;

TEST(MeshBinding, TwoListedAddressesAreTwoRails) {
  Job job(2, loopback_config("127.0.0.1,127.0.0.2"));
  job.exchange_endpoints();
  ASSERT_EQ(job[0].mesh->rails(WorldRank(1)), 2);
  ASSERT_EQ(job[1].mesh->rails(WorldRank(0)), 2);
  for (std::uint8_t rail : {0, 1})
    job[0].mesh->dial(WorldRank(1), {7, transport::Purpose::collective, rail}, in(seconds(20)));
  ASSERT_NO_FATAL_FAILURE(job.drive_until([&] { return job.event_count() == 4; }));
  for (const LinkEvent& event : job[0].events) {
    const std::string host = event.key.rail == 0 ? "127.0.0.1:" : "127.0.0.2:";
    ASSERT_TRUE(event.link) << event.reason;
    EXPECT_THAT(event.link->description(), HasSubstr("tcp " + host));
    EXPECT_THAT(event.link->description(), HasSubstr("-> " + host));
  }
}

TEST(MeshBinding, UsesTheLargerNumberOfRailsOfBothSides) {
  Job job(3, loopback_config());
  job.join(1, loopback_config("127.0.0.1,127.0.0.2,127.0.0.3"));
  Config wildcard;
  wildcard.port_base = 0;
  job.join(2, wildcard);
  job.exchange_endpoints();
  EXPECT_EQ(job[0].mesh->rails(WorldRank(1)), 3);
  EXPECT_EQ(job[1].mesh->rails(WorldRank(0)), 3);
  EXPECT_EQ(job[1].mesh->rails(WorldRank(2)), 3);
  EXPECT_EQ(job[2].mesh->rails(WorldRank(1)), 3);
  EXPECT_EQ(job[0].mesh->rails(WorldRank(2)), 1);
  EXPECT_EQ(job[2].mesh->rails(WorldRank(0)), 1);
  for (std::uint8_t rail : {0, 1, 2}) {
    job[0].mesh->dial(WorldRank(1), {7, transport::Purpose::collective, rail}, in(seconds(20)));
    job[2].mesh->dial(WorldRank(1), {7, transport::Purpose::collective, rail}, in(seconds(20)));
  }
  ASSERT_NO_FATAL_FAILURE(job.drive_until([&] { return job.event_count() == 12; }));
  for (int rank : {0, 1, 2}) {
    for (const LinkEvent& event : job[rank].events) EXPECT_TRUE(event.link) << event.reason;
  }
}

TEST(MeshBinding, DescribesTheInterfacesOfAPair) {
  for (const auto& [listed, links] : {std::pair("127.0.0.1", "tcp, 1 link, lo"),
                                      std::pair("127.0.0.1,127.0.0.2", "tcp, 2 links, lo")}) {
    Job job(2, loopback_config(listed));
    job.exchange_endpoints();
    job[1].mesh->dial(WorldRank(0), {}, in(seconds(20)));
    ASSERT_NO_FATAL_FAILURE(job.drive_until([&] { return job.event_count() == 2; }));
    EXPECT_THAT(job[0].mesh->describe(WorldRank(1)), ::testing::StartsWith(links));
    EXPECT_THAT(job[1].mesh->describe(WorldRank(0)), ::testing::StartsWith(links));
  }
}

TEST(MeshBinding, DebugLogsEachConnection) {
  Job job(2);
  for (int rank : {0, 1}) {
    MeshOptions options = job.options(rank, loopback_config(), &job[rank]);
    options.log = Log(rank, LogLevel::debug);
    job.join(std::move(options));
  }
  job.exchange_endpoints();
  ::testing::internal::CaptureStderr();
  for (const LinkKey& key : {LinkKey{}, LinkKey{7, transport::Purpose::collective, 0}}) {
    const std::size_t before = job.event_count();
    job[1].mesh->dial(WorldRank(0), key, in(seconds(20)));
    job.drive_until([&] { return job.event_count() == before + 2; });
  }
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("rank 1] this rank connects to rank 0 (control) at 127.0.0.1:"));
  EXPECT_THAT(said, HasSubstr("rank 1] connection 1, to rank 0 (control): tcp 127.0.0.1:"));
  EXPECT_THAT(said, HasSubstr("rank 1] connection 2, to rank 0 (collectives, rail 0, group 7)"));
  EXPECT_THAT(said, HasSubstr("rank 0] connection 2, from rank 1 (collectives"));
}

TEST(MeshBinding, ARailWithAFailedPathUsesAnother) {
  Job job(2, loopback_config("127.0.0.1,127.0.0.2"));
  std::vector<Endpoint> endpoints = job.endpoints();
  endpoints[1].addresses[1] = "127.0.0.77";  // nothing listens there
  job[0].mesh->set_endpoints(endpoints);
  job[0].mesh->dial(WorldRank(1), {7, transport::Purpose::collective, 1}, in(seconds(20)));
  ASSERT_NO_FATAL_FAILURE(job.drive_until([&] { return job.event_count() == 2; }));
  ASSERT_TRUE(job[0].events[0].link) << job[0].events[0].reason;
  EXPECT_THAT(job[0].events[0].link->description(), HasSubstr("-> 127.0.0.1:"));
}

TEST(MeshBinding, ConnectsOverIPv6) {
  if (!has_ipv6()) GTEST_SKIP() << "no IPv6 here";
  Job job(2, loopback_config("::1"));
  job.exchange_endpoints();
  job[1].mesh->dial(WorldRank(0), {}, in(seconds(20)));
  ASSERT_NO_FATAL_FAILURE(job.drive_until([&] { return job.event_count() == 2; }));
  EXPECT_THAT(job[1].event_of(0)->link->description(), HasSubstr("-> [::1]:"));
}

TEST(MeshBinding, TheWildcardIsReachedOverBothFamilies) {
  Config wildcard;
  wildcard.port_base = 0;
  Job job(2, wildcard);
  std::vector<Endpoint> endpoints = job.endpoints();
  const std::uint16_t port = endpoints[1].port;
  for (const char* host : {"127.0.0.1", "::1"}) {
    if (std::string(host) == "::1" && !has_ipv6()) continue;
    job.join(0, wildcard);
    endpoints[0] = job[0].mesh->endpoint();
    endpoints[1].addresses = {host};
    endpoints[1].listed = true;
    job[0].mesh->set_endpoints(endpoints);
    job[1].events.clear();
    job[0].mesh->dial(WorldRank(1), {}, in(seconds(20)));
    ASSERT_NO_FATAL_FAILURE(job.drive_until([&] { return job.event_count() == 2; }));
    EXPECT_THAT(job[0].event_of(1)->link->description(),
                HasSubstr("-> " + Address::parse_numeric(host, port)->text()));
  }
}

}  // namespace
}  // namespace mccl::rendezvous
