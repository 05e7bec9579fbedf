// Tests how long `mccl launch` and a host wait for messages from each other, and what the launcher
// reports when none arrive.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "cli/kit/ssh.h"
#include "cli/launch/failure.h"
#include "cli/launch/remote_script.h"
#include "mccl/error.h"

namespace mccl::cli::launch {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

Job job_of(const Variables& environment = {}) {
  JobRequest request;
  request.program = {"./program"};
  request.hosts = parse_hosts("--hosts", "a,b");
  request.environment = environment;
  return plan_job(request, "key");
}

TEST(LaunchSilence, ExceedsTheLivenessIntervalOfTheRanks) {
  EXPECT_EQ(silence_of(job_of(), {}, {}), 20s);
  EXPECT_EQ(silence_of(job_of(), {{"MCCL_LIVENESS_INTERVAL", "60"}}, {}), 120s);
  EXPECT_EQ(silence_of(job_of({{"MCCL_LIVENESS_INTERVAL", "0.5"}}),
                       {{"MCCL_LIVENESS_INTERVAL", "60"}}, {}),
            6s);
  EXPECT_EQ(silence_of(job_of(), {}, 11), 11s);
  EXPECT_EQ(silence_of(job_of({{"MCCL_LIVENESS_INTERVAL", "wrong"}}), {}, {}), 20s);
}

TEST(LaunchSilence, RefusesAnIntervalThatIsTooShort) {
  try {
    silence_of(job_of(), {}, 10);
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("--silence 10"), HasSubstr("10 s"),
                                    HasSubstr("MCCL_LIVENESS_INTERVAL")));
  }
}

TEST(LaunchSilence, AppliesToSshAndTheGuard) {
  const Job job = job_of();
  const auto words = ssh_words(job.hosts[0], SshRole::master, "/s", 18s, {}, "true");
  // ssh probes a silent server three times, and gives up five seconds after the last probe.
  EXPECT_THAT(words, Contains("ServerAliveInterval=5"));
  EXPECT_THAT(words, Contains("ServerAliveCountMax=3"));
  EXPECT_THAT(check_script("token", {}, "", 5s, 18s), HasSubstr("-lt 18 ]"));
}

class LaunchContact : public ::testing::Test {
 protected:
  /// Sends beats and answers until this many seconds after the start.
  void talk_until(int second) {
    for (; second_ < second; ++second_) {
      contact_.beat(at(second_), at(second_));
      contact_.answered(at(second_));
    }
    contact_.answered(at(second_));
  }
  Clock::time_point at(double second) const {
    return start_ + std::chrono::milliseconds(static_cast<int>(1000 * second));
  }
  std::string text() const { return contact_.trouble().value_or(Trouble{}).text; }
  bool ranks_lost() const { return contact_.trouble().value_or(Trouble{}).ranks_lost; }

  const Clock::time_point start_ = Clock::now();
  int second_ = 0;
  Contact contact_{parse_host("", "me@b"), 20s};
};

TEST_F(LaunchContact, IsQuietWhileOutputArrives) {
  talk_until(100);
  EXPECT_EQ(text(), "");
  contact_.ending(at(101));
  contact_.broke(at(140), "Timeout, server b not responding.");
  EXPECT_EQ(text(), "") << "it broke after the job had ended";
  contact_.ended_there();
  EXPECT_EQ(text(), "") << "the guard ended ranks after the job had ended";
}

TEST_F(LaunchContact, BlamesTheNetworkForABreakDuringSilence) {
  talk_until(5);
  contact_.broke(at(25), "Timeout, server b not responding.");
  contact_.ending(at(25.1));
  EXPECT_TRUE(ranks_lost());
  EXPECT_THAT(text(), AllOf(HasSubstr("b: nothing was received from this host since "),
                            HasSubstr("for 20.0 s"), HasSubstr("network"), HasSubstr("ssh me@b"),
                            HasSubstr("a larger --silence (now 20 s) allows")));
}

TEST_F(LaunchContact, ExplainsAConnectionThatBreaksDuringOutput) {
  talk_until(5);
  contact_.broke(at(5.5), "Connection to b closed by remote host.");
  EXPECT_TRUE(ranks_lost());
  EXPECT_THAT(text(),
              AllOf(HasSubstr("closed by remote host"), Not(HasSubstr("nothing was received"))));
}

TEST_F(LaunchContact, BlamesTheNetworkForAFailureDuringSilence) {
  talk_until(5);
  contact_.ending(at(15));
  contact_.ending(at(20));
  EXPECT_TRUE(ranks_lost());
  EXPECT_THAT(text(), AllOf(HasSubstr("for 10.0 s"),
                            HasSubstr("a larger MCCL_LIVENESS_INTERVAL allows longer gaps")));
  contact_.rank_ended(at(21));
  EXPECT_FALSE(ranks_lost()) << "its ranks ended otherwise, once the network was back";
  EXPECT_THAT(text(), HasSubstr("for 10.0 s"));
}

TEST_F(LaunchContact, AGuardThatEndedItsRanksNamesTheNetwork) {
  talk_until(5);
  contact_.ending(at(26));
  contact_.ended_there();
  contact_.answered(at(27));
  EXPECT_TRUE(ranks_lost());
  EXPECT_THAT(text(), AllOf(HasSubstr("b: this host ended its ranks, because it received nothing "
                                      "from the launcher for 20 s"),
                            HasSubstr("the network between this host and the launcher failed")));
}

TEST_F(LaunchContact, ReportsThatTheLauncherWasStopped) {
  talk_until(5);
  contact_.beat(at(6), at(31));
  contact_.ended_there();
  EXPECT_THAT(text(), AllOf(HasSubstr("the launcher did not run for 25.0 s"),
                            Not(HasSubstr("network between"))));
}

}  // namespace
}  // namespace mccl::cli::launch
