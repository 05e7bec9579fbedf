// Tests how a rank chooses RDMA devices from those that all ranks published, with simulated
// devices.
#include "rendezvous/meeting/rdma_devices.h"

#include <gmock/gmock.h>

#include <fstream>

#include "support/folder.h"
#include "support/verbs_double.h"

namespace mccl::rendezvous {
namespace {

using mccl::testing::VerbsDouble;
using ::testing::HasSubstr;
using transport::rdma::Card;
using transport::rdma::RdmaTransport;
using transport::rdma::Survey;

/// Two ranks on two hosts with two devices each. meet() returns what rank 0 logs while it makes its
/// transport.
class RdmaDevices : public ::testing::Test {
 protected:
  RdmaDevices() {
    config_.rdma_device = folder_.path() + "/devices.json";
    verbs_[0]->add("here0", 1);
    verbs_[0]->add("here1", 2);
    verbs_[1]->add("there0", 3);
    verbs_[1]->add("there1", 4);
  }

  std::string meet(const std::string& table) {
    std::ofstream(config_.rdma_device) << table;
    std::vector<Survey> surveys;
    std::vector<Card> cards;
    std::vector<Endpoint> endpoints;
    for (int rank = 0; rank < 2; ++rank) {
      surveys.push_back(find_rdma(config_, WorldRank(rank), 2, false, verbs_[rank]));
      cards.push_back(surveys.back().card);
      endpoints.push_back({.rank = rank, .host = rank == 0 ? "here" : "there"});
    }
    ::testing::internal::CaptureStderr();
    const Log log(0, LogLevel::warn);
    made_ = make_rdma(
        {.rank = 0, .config = config_, .log = log, .endpoints = endpoints, .cards = cards},
        std::move(surveys[0]));
    return ::testing::internal::GetCapturedStderr();
  }

  const mccl::testing::Folder folder_;
  Config config_;
  const std::shared_ptr<VerbsDouble> verbs_[2] = {std::make_shared<VerbsDouble>(),
                                                  std::make_shared<VerbsDouble>()};
  std::unique_ptr<RdmaTransport> made_;
};

TEST_F(RdmaDevices, AreQuietIfAllAreUsable) {
  EXPECT_EQ(meet(R"([[null, ["here0", "here1"]], [["there0", "there1"], null]])"), "");
  ASSERT_TRUE(made_);
  EXPECT_EQ(made_->rails(WorldRank(1)), 2);
}

TEST_F(RdmaDevices, OneBadDeviceIsNamedAndTheOthersAreUsed) {
  const std::string said = meet(R"([[null, ["here0", "gone7"]], [["there0", "there1"], null]])");
  EXPECT_THAT(said, ::testing::AllOf(HasSubstr("WARN"), HasSubstr("device gone7"),
                                     HasSubstr("available: here0, here1")));
  ASSERT_TRUE(made_);
  EXPECT_EQ(made_->rails(WorldRank(1)), 1);
}

TEST_F(RdmaDevices, TheReasonIsLoggedIfNoneIsUsable) {
  EXPECT_THAT(meet(R"([[null, "gone7"], ["there0", null]])"),
              ::testing::AllOf(HasSubstr("WARN"), HasSubstr("gone7")));
  EXPECT_FALSE(made_);
  EXPECT_THAT(meet(R"([[null, "here0"], ["gone8", null]])"),
              ::testing::AllOf(HasSubstr("no RDMA to rank 1"), HasSubstr("gone8")));
  EXPECT_FALSE(made_);
}

TEST_F(RdmaDevices, AreNotUsedWithEncryption) {
  config_.encryption = "on";
  const std::string table = R"([[null, ["here0", "here1"]], [["there0", "there1"], null]])";
  const char* const reason = "RDMA does not encrypt, and the rank's MCCL_ENCRYPTION is on";
  EXPECT_THAT(meet(table), ::testing::AllOf(HasSubstr("WARN"), HasSubstr(reason)));
  EXPECT_FALSE(made_);
  config_.transport = "rdma";
  try {
    meet(table);
    FAIL() << "RDMA is used";
  } catch (const PeerError& error) {
    ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(error.what(),
                ::testing::AllOf(HasSubstr(reason), HasSubstr("set MCCL_TRANSPORT to auto")));
  }
}

TEST_F(RdmaDevices, OneBadDeviceIsAnErrorIfRdmaIsRequired) {
  config_.transport = "rdma";
  try {
    meet(R"([[null, ["here0", "gone7"]], [["there0", "there1"], null]])");
    FAIL() << "links were made although one of two devices is missing";
  } catch (const PeerError& error) {
    ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(error.what(), ::testing::AllOf(HasSubstr("MCCL_TRANSPORT is rdma"),
                                               HasSubstr("there is no device gone7"),
                                               HasSubstr("MISSING gone7")));
  }
}

}  // namespace
}  // namespace mccl::rendezvous
