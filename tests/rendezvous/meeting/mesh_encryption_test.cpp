// Tests the encrypted connections that meshes make.
#include "rendezvous/meeting/mesh_job.h"

namespace mccl::rendezvous {
namespace {

using ::testing::HasSubstr;

constexpr transport::LinkKey kEncryptedLink = {7, transport::Purpose::collective, 0};

/// Replaces the mesh of a rank by one that encrypts.
void join_encrypted(Job& job, int rank) {
  MeshOptions options = job.options(rank, loopback_config(), nullptr);
  options.config.encryption = "on";
  job.join(std::move(options));
}

TEST(MeshEncryption, EveryConnectionIsEncrypted) {
  Job job(2);
  join_encrypted(job, 0);
  join_encrypted(job, 1);
  job.exchange_endpoints();
  job[0].mesh->dial(WorldRank(1), {}, in(seconds(20)));
  job[0].mesh->dial(WorldRank(1), kEncryptedLink, in(seconds(20)));
  ASSERT_NO_FATAL_FAILURE(job.drive_until([&] { return job.event_count() == 4; }));
  for (const LinkEvent& event : job[0].events) {
    ASSERT_TRUE(event.link) << event.reason;
    EXPECT_THAT(event.link->description(), HasSubstr("encrypted tcp"));
  }
  EXPECT_THAT(job[0].mesh->describe(WorldRank(1)), HasSubstr("encrypted tcp, 1 link"));
}

TEST(MeshEncryption, ADowngradeIsRefusedOnBothSides) {
  Job job(2);
  join_encrypted(job, 1);
  job.exchange_endpoints();
  job[0].mesh->dial(WorldRank(1), kEncryptedLink, in(seconds(20)));
  ASSERT_NO_FATAL_FAILURE(job.drive_until([&] { return job.event_count() == 2; }));
  for (int rank : {0, 1}) {
    EXPECT_FALSE(job[rank].events[0].link);
    EXPECT_THAT(job[rank].events[0].reason, HasSubstr("differ in encryption"));
  }
}

/// Once a link has accepted all bytes, its owner does not write to it again. So the mesh must send
/// the bytes that the link holds.
TEST(MeshEncryption, FlushesBytesHeldByALink) {
  Job job(2);
  join_encrypted(job, 0);
  join_encrypted(job, 1);
  job.exchange_endpoints();
  job[0].mesh->dial(WorldRank(1), kEncryptedLink, in(seconds(20)));
  ASSERT_NO_FATAL_FAILURE(job.drive_until([&] { return job.event_count() == 2; }));
  ASSERT_TRUE(job[0].events[0].link && job[1].events[0].link);
  transport::Link& from = *job[0].events[0].link;
  transport::Link& to = *job[1].events[0].link;
  const Bytes block(1 << 20, std::byte{3});
  std::size_t sent = 0;
  while (const std::size_t taken = from.write(block)) sent += taken;
  EXPECT_LE(job[0].mesh->next_deadline(), Clock::now())
      << "a sleeping thread would not watch the link";
  Bytes piece(1 << 16);
  std::size_t got = 0;
  std::vector<LinkEvent> none;
  while (got < sent) {
    std::vector<pollfd> watched = {{to.descriptor(), POLLIN, 0}};
    job[0].mesh->watch(watched);
    EXPECT_GT(job[0].mesh->next_deadline(), Clock::now())
        << "the link is watched, so nothing is due";
    ASSERT_GT(::poll(watched.data(), watched.size(), 20'000), 0) << got << " of " << sent;
    job[0].mesh->progress(none);
    while (const std::size_t bytes = to.read(piece)) got += bytes;
  }
  EXPECT_EQ(got, sent);
}

}  // namespace
}  // namespace mccl::rendezvous
