#include "rendezvous/meeting/join.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <string>
#include <utility>
#include <vector>

#include "mccl/error.h"

namespace mccl::rendezvous {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

/// The launcher's end of a rank's connection, which answers the questions in order.
struct Launcher {
  explicit Launcher(std::vector<std::string> answers) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    rank = ends[0];
    own = ends[1];
    thread = std::async(std::launch::async, [this, answers = std::move(answers)] {
      std::string asked;
      for (const std::string& answer : answers) {
        for (char c = 0; c != '\n'; asked += c)
          if (::read(own, &c, 1) != 1) return asked;
        if (::write(own, answer.data(), answer.size()) < 0) return asked;
      }
      ::shutdown(own, SHUT_RDWR);
      return asked;
    });
  }
  ~Launcher() {
    ::close(rank);
    if (thread.valid()) thread.wait();
    ::close(own);
  }

  int rank = -1;
  int own = -1;
  std::future<std::string> thread;
};

const std::vector<std::string> kGood = {
    "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n", "cmd=my_kvsname kvsname=kvs_1\n",
    "cmd=barrier_out\n", "cmd=get_result rc=0 msg=success value=h:17\n", "cmd=finalize_ack\n"};

TEST(Join, AsksTheLauncherOfMpichForTheRoot) {
  Launcher launcher(kGood);
  EXPECT_EQ(exchange_root(launcher.rank, 1, "", seconds(20)), "h:17");
}

TEST(Join, Rank0GivesTheRootToTheLauncherOfMpich) {
  std::vector<std::string> answers = kGood;
  answers.insert(answers.begin() + 2, "cmd=put_result rc=0 msg=success\n");
  Launcher launcher(answers);
  EXPECT_EQ(exchange_root(launcher.rank, 0, "h:17", seconds(20)), "h:17");
  EXPECT_THAT(launcher.thread.get(),
              HasSubstr("cmd=put kvsname=kvs_1 key=mccl-root value=h:17\ncmd=barrier_in\n"));
}

TEST(Join, AWrongAnswerOfMpichsLauncherIsAnErrorWithTheCure) {
  for (std::size_t wrong = 0; wrong < kGood.size(); ++wrong) {
    for (const std::string answer : {"cmd=other\n", "\n", "cmd=get_result rc=-1 value=x\n", ""}) {
      std::vector<std::string> answers(kGood.begin(), kGood.begin() + static_cast<long>(wrong));
      if (!answer.empty()) answers.push_back(answer);
      Launcher launcher(answers);
      try {
        exchange_root(launcher.rank, 1, "", seconds(20));
        ADD_FAILURE() << wrong << answer;
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("MCCL_ROOT"));
      }
    }
  }
}

TEST(Join, NeedsNoStoreForOneRank) { EXPECT_EQ(join({}, {}).store, nullptr); }

TEST(Join, AnInvalidAddressNamesItsSetting) {
  Config config;
  Placement placement{.rank = 0, .size = 2, .found_by = "MCCL"};
  const auto message = [&] {
    try {
      join(placement, config);
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  for (const auto& [root, why] : std::vector<std::pair<std::string, std::string>>{
           {"127.0.0.1", "it has no port"},
           {"http://127.0.0.1:29500", "it is a URL"},
           {"127.0.0.1:abc", "the port must be 1 to 65535"},
           {"127.0.0.1:0", "the port must be 1 to 65535"}}) {
    config.root = placement.root = root;
    EXPECT_THAT(message(), ::testing::StartsWith("MCCL_ROOT: \"" + root + "\"")) << root;
    EXPECT_THAT(message(), HasSubstr(why)) << root;
  }
  config.root.clear();  // the launcher's value overrides the setting
  EXPECT_THAT(message(), HasSubstr("set MCCL_ROOT=host:port on all ranks to use another address"));
}

}  // namespace
}  // namespace mccl::rendezvous
