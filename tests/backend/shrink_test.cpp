// Tests groups that continue without the ranks that died.
#include <algorithm>
#include <thread>

#include "support/processes.h"

namespace mccl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Processes;
using testing::test_config;

/// Returns the sum of the members' ranks in the job, which shows which ranks take part.
std::int64_t sum_of_ranks(Context& context, Group& group) {
  std::int64_t value = context.rank();
  const Buffer buffer{&value, 1, DType::i64};
  group.all_reduce(buffer, buffer, ReduceKind::sum).wait();
  return value;
}

/// Makes calls until one fails.
void call_until_failure(Context& context, Group& group) {
  try {
    for (;;) sum_of_ranks(context, group);
  } catch (const PeerError&) {
  }
}

std::string place(const Group& group, std::int64_t sum) {
  return fmt::format("{} of {}, sum {}", group.rank(), group.size(), sum);
}

class Shrink : public ::testing::TestWithParam<const char*> {
 protected:
  Processes::Options options() const {
    return {.store_address = {},
            .config_of =
                [transport = GetParam()](int) {
                  Config config = test_config();
                  config.transport = transport;
                  config.calibrate = false;
                  config.timeout = 1800;
                  return config;
                },
            .enter = {},
            .at_the_store = {}};
  }
};

TEST_P(Shrink, LetsTheSurvivorsOfAKilledRankGoOn) {
  for (const int victim : {0, 2, 3}) {
    Processes job(
        4,
        [](Context& context, const Processes::Say& say) {
          say("ready");
          call_until_failure(context, *context.world());
          const auto rest = context.world()->shrink(seconds(30));
          say(place(*rest, sum_of_ranks(context, *rest)));
          rest->barrier().wait();
        },
        options());
    for (int rank = 0; rank < 4; ++rank) ASSERT_EQ(job.line(rank), "ready");
    job.signal(victim, SIGKILL);
    int expected = 0;
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == victim) continue;
      EXPECT_EQ(job.line(rank, seconds(30)),
                fmt::format("{} of 3, sum {}", expected++, 6 - victim));
    }
  }
}

TEST_P(Shrink, WorksAgainDownToOneRank) {
  Processes job(
      3,
      [](Context& context, const Processes::Say& say) {
        std::shared_ptr<Group> group = context.world();
        while (group->size() > 1) {
          say("ready");
          call_until_failure(context, *group);
          group = group->shrink(seconds(30));
          say(place(*group, sum_of_ranks(context, *group)));
        }
      },
      options());
  for (int rank = 0; rank < 3; ++rank) ASSERT_EQ(job.line(rank), "ready");
  job.signal(0, SIGKILL);
  for (const int rank : {1, 2})
    ASSERT_EQ(job.line(rank, seconds(30)), fmt::format("{} of 2, sum 3", rank - 1));
  for (const int rank : {1, 2}) ASSERT_EQ(job.line(rank), "ready");
  job.signal(1, SIGKILL);
  EXPECT_EQ(job.line(2, seconds(30)), "0 of 1, sum 2");
}

TEST_P(Shrink, GoesOnWithoutARankThatDiesMeanwhile) {
  Processes job(
      4,
      [](Context& context, const Processes::Say& say) {
        say("ready");
        call_until_failure(context, *context.world());
        if (context.rank() == 1) {
          say("in the way");
          for (;;) ::pause();
        }
        const auto rest = context.world()->shrink(seconds(30));
        say(place(*rest, sum_of_ranks(context, *rest)));
      },
      options());
  for (int rank = 0; rank < 4; ++rank) ASSERT_EQ(job.line(rank), "ready");
  job.signal(3, SIGKILL);
  ASSERT_EQ(job.line(1, seconds(30)), "in the way");
  job.signal(1, SIGKILL);
  EXPECT_EQ(job.line(0, seconds(30)), "0 of 2, sum 2");
  EXPECT_EQ(job.line(2, seconds(30)), "1 of 2, sum 2");
}

/// A rank that shrinks one group keeps its other groups unchanged.
TEST_P(Shrink, LeavesOtherGroupsAlone) {
  Processes job(
      3,
      [](Context& context, const Processes::Say& say) {
        std::shared_ptr<Group> pair;
        if (context.rank() < 2) pair = context.group("pair", {0, 1}, seconds(60));
        say("ready");
        call_until_failure(context, *context.world());
        const auto rest = context.world()->shrink(seconds(30));
        say(place(*pair, sum_of_ranks(context, *pair)));
        say(place(*rest, sum_of_ranks(context, *rest)));
      },
      options());
  for (int rank = 0; rank < 3; ++rank) ASSERT_EQ(job.line(rank), "ready");
  job.signal(2, SIGKILL);
  for (const int rank : {0, 1}) {
    EXPECT_EQ(job.line(rank, seconds(30)), fmt::format("{} of 2, sum 1", rank));
    EXPECT_EQ(job.line(rank, seconds(30)), fmt::format("{} of 2, sum 1", rank));
  }
}

TEST_P(Shrink, OfAHealthyGroupKeepsAllRanks) {
  Processes job(
      2,
      [](Context& context, const Processes::Say& say) {
        const auto same = context.world()->shrink();
        say(place(*same, sum_of_ranks(context, *same) + sum_of_ranks(context, *context.world())));
        same->barrier().wait();
        // Messages of the first shrink between the ranks must not affect the second.
        say(place(*context.world()->shrink(), 0));
        context.world()->barrier().wait();
      },
      options());
  for (const int rank : {0, 1}) {
    EXPECT_EQ(job.line(rank), fmt::format("{} of 2, sum 2", rank));
    EXPECT_EQ(job.line(rank), fmt::format("{} of 2, sum 0", rank));
  }
}

TEST_P(Shrink, NamesTheRankThatDoesNotCallIt) {
  Processes job(
      3,
      [](Context& context, const Processes::Say& say) {
        if (context.rank() == 2) {
          say("elsewhere");
          for (;;) ::pause();
        }
        try {
          (void)context.world()->shrink(milliseconds(300));
        } catch (const TimeoutError& error) {
          say(error.what());
        }
        for (;;) ::pause();
      },
      options());
  ASSERT_EQ(job.line(2), "elsewhere");
  const std::string error = job.line(0, seconds(30));
  EXPECT_NE(error.find("rank 2 did not call shrink"), std::string::npos) << error;
  for (int rank = 0; rank < 3; ++rank) job.signal(rank, SIGKILL);
}

/// A stopped rank may still be alive. The other two of three ranks may go on without it, and it
/// must not go on alone.
TEST_P(Shrink, NeverLeavesTwoGroupsOfRanksThatLive) {
  Processes::Options quick = options();
  quick.config_of = [base = quick.config_of](int rank) {
    Config config = base(rank);
    config.liveness_interval = 1;
    config.connect_timeout = 10;  // detects a rank that stops before its first heartbeat
    return config;
  };
  Processes job(
      3,
      [](Context& context, const Processes::Say& say) {
        say("ready");
        call_until_failure(context, *context.world());
        try {
          const auto rest = context.world()->shrink(seconds(30));
          say(place(*rest, sum_of_ranks(context, *rest)));
        } catch (const PeerError& error) {
          say(error.what());
        }
        for (;;) ::pause();
      },
      quick);
  for (int rank = 0; rank < 3; ++rank) ASSERT_EQ(job.line(rank), "ready");
  job.signal(2, SIGSTOP);
  for (const int rank : {0, 1})
    EXPECT_EQ(job.line(rank, seconds(60)), fmt::format("{} of 2, sum 1", rank));
  job.signal(2, SIGCONT);
  // The error depends on what rank 2 notices first: that it cannot reach the others, or that they
  // have excluded it.
  const std::string error = job.line(2, seconds(60));
  EXPECT_TRUE(error.find("this rank reaches too few") != std::string::npos ||
              error.find("the other ranks continue without this rank") != std::string::npos)
      << error;
  for (int rank = 0; rank < 3; ++rank) job.signal(rank, SIGKILL);
}

INSTANTIATE_TEST_SUITE_P(Transports, Shrink, ::testing::Values("tcp", "shm"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace mccl
