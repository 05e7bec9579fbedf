// Tests that a rank's death is noticed while the other ranks wait for a third one that makes its
// next call late, for example because it saves a checkpoint.
#include <thread>

#include "support/processes.h"

namespace mccl {
namespace {

using testing::Processes;
using testing::test_config;

struct Scene {
  const char* name;
  const char* transport;
  const char* algorithm;
  void (*call)(Group& group);
};

void PrintTo(const Scene& scene, std::ostream* stream) { *stream << scene.name; }

template <std::size_t kCount>
void all_reduce(Group& group) {
  std::vector<float> data(kCount, 1);
  const Buffer buffer{data.data(), kCount, DType::f32};
  group.all_reduce(buffer, buffer, ReduceKind::sum).wait();
}

void all_to_all(Group& group) {
  std::vector<float> in(400'000), out(400'000);
  group.all_to_all({in.data(), in.size(), DType::f32}, {out.data(), out.size(), DType::f32}).wait();
}

class KilledBehindALateRank : public ::testing::TestWithParam<Scene> {};

TEST_P(KilledBehindALateRank, EndsTheCallOfEveryWaitingRank) {
  const Scene scene = GetParam();
  Processes job(4,
                [scene](Context& context, const Processes::Say& say) {
                  scene.call(*context.world());
                  if (context.rank() == 1) {
                    say("late");
                    for (;;) ::pause();
                  }
                  if (context.rank() != 2) say("waits");
                  scene.call(*context.world());
                },
                {.store_address = {},
                 .config_of =
                     [scene](int) {
                       Config config = test_config();
                       config.transport = scene.transport;
                       config.algorithm = scene.algorithm;
                       config.calibrate = false;
                       config.timeout = 1800;
                       return config;
                     },
                 .enter = {},
                 .at_the_store = {}});
  ASSERT_EQ(job.line(1), "late");
  for (const int rank : {0, 3}) ASSERT_EQ(job.line(rank), "waits");
  job.signal(2, SIGKILL);
  for (const int rank : {0, 3}) {
    const std::string error = job.line(rank, std::chrono::seconds(10));
    EXPECT_NE(error.find("rank 2 is gone"), std::string::npos) << error;
  }
}

/// Ends with an error on rank 0, whatever way rank 1 goes.
void receive_from_any(Context& context, const Processes::Say& say) {
  Group& world = *context.world();
  all_reduce<4>(world);
  if (context.rank() == 1) {
    say("here");
    return;
  }
  char token = 0;
  world.recv({&token, 1, DType::u8}, kAnySource, 0).wait();
}

TEST(ADeadRank, EndsReceivesFromAnyRank) {
  Processes job(3, [](Context& context, const Processes::Say& say) {
    receive_from_any(context, say);
    for (;;) ::pause();
  });
  ASSERT_EQ(job.line(1), "here");
  job.signal(1, SIGKILL);
  for (const int rank : {0, 2}) {
    const std::string error = job.line(rank, std::chrono::seconds(10));
    EXPECT_NE(error.find("rank 1 is gone"), std::string::npos) << error;
  }
}

TEST(ARankThatHasLeft, EndsReceivesFromAnyRankIfItWasTheLast) {
  Processes job(2, receive_from_any);
  ASSERT_EQ(job.line(1), "here");
  const std::string error = job.line(0, std::chrono::seconds(10));
  EXPECT_NE(error.find("rank 1 is gone"), std::string::npos) << error;
}

TEST(ARankThatHasLeft, LeavesMessagesThatHaveArrived) {
  Processes job(2, [](Context& context, const Processes::Say& say) {
    Group& world = *context.world();
    all_reduce<4>(world);
    char token = 7;
    const Buffer message{&token, 1, DType::u8};
    if (context.rank() == 1) {
      world.send(message, 0, 5).wait();
      return;
    }
    try {
      world.recv(message, kAnySource, 6).wait();
    } catch (const PeerError&) {
      say("ended");
    }
    world.recv(message, kAnySource, 5).wait();
    say("received");
  });
  ASSERT_EQ(job.line(0, std::chrono::seconds(10)), "ended");
  EXPECT_EQ(job.line(0, std::chrono::seconds(10)), "received");
}

class BehindALateRank : public ::testing::TestWithParam<const char*> {
 protected:
  Processes::Options options() const {
    return {.store_address = {},
            .config_of =
                [transport = GetParam()](int) {
                  Config config = test_config();
                  config.transport = transport;
                  config.algorithm = "ring";
                  config.calibrate = false;
                  config.timeout = 1800;
                  return config;
                },
            .enter = {},
            .at_the_store = {}};
  }
};

/// Messages in progress between other members do not hide the loss.
TEST_P(BehindALateRank, AKilledRankEndsCollectivesWhileMessagesMove) {
  Processes job(
      4,
      [](Context& context, const Processes::Say& say) {
        Group& world = *context.world();
        all_reduce<4000>(world);
        char token = 0;
        const Buffer message{&token, 1, DType::u8};
        if (context.rank() == 1) {
          say("late");
          for (;;) world.recv(message, 0, 0).wait();
        }
        say("waits");
        if (context.rank() != 0) return all_reduce<4000>(world);
        std::vector<float> data(4000, 1);
        const Buffer buffer{data.data(), data.size(), DType::f32};
        const Work sum = world.all_reduce(buffer, buffer, ReduceKind::sum);
        while (!sum.done()) world.send(message, 1, 0).wait();
        sum.wait();
      },
      options());
  ASSERT_EQ(job.line(1), "late");
  for (const int rank : {0, 2, 3}) ASSERT_EQ(job.line(rank), "waits");
  job.signal(2, SIGKILL);
  for (const int rank : {0, 3}) {
    const std::string error = job.line(rank, std::chrono::seconds(10));
    EXPECT_NE(error.find("rank 2 is gone"), std::string::npos) << error;
  }
}

/// Ranks notice that a member has left without waiting for the late rank.
TEST_P(BehindALateRank, ADepartedRankEndsCollectivesThatItHasNotCalled) {
  Processes job(
      4,
      [](Context& context, const Processes::Say& say) {
        Group& world = *context.world();
        all_reduce<4000>(world);
        // Rank 2 leaves once all ranks have completed the first call. Otherwise a rank that has not
        // would fail with the group.
        char token = 0;
        const Buffer one{&token, 1, DType::u8};
        if (context.rank() == 2) {
          for (int others = 0; others < 3; ++others) world.recv(one, kAnySource, 0).wait();
          return;
        }
        world.send(one, 2, 0).wait();
        say("waits");
        if (context.rank() == 1) {
          for (;;) ::pause();
        }
        all_reduce<4000>(world);
      },
      options());
  for (const int rank : {0, 1, 3}) ASSERT_EQ(job.line(rank), "waits");
  for (const int rank : {0, 3}) {
    const std::string error = job.line(rank, std::chrono::seconds(10));
    EXPECT_NE(error.find("rank 2 is gone"), std::string::npos) << error;
  }
}

/// Set in each rank's process before the ranks meet.
Store* the_store = nullptr;

/// If a rank completed a call before it left, the others complete it too.
TEST(ARankThatHasLeft, DoesNotFailCollectivesThatItTookPartIn) {
  Processes job(4,
                [](Context& context, const Processes::Say&) {
                  Group& world = *context.world();
                  all_reduce<4000>(world);
                  if (context.rank() != 2) {
                    while (the_store->add("ranks that have ended", 0) == 0) {
                      std::this_thread::yield();
                    }
                  }
                  char token = 0;
                  world.broadcast({&token, 1, DType::u8}, 2).wait();
                },
                {.store_address = {},
                 .config_of =
                     [](int) {
                       Config config = test_config();
                       config.transport = "tcp";
                       config.calibrate = false;
                       return config;
                     },
                 .enter = {},
                 .at_the_store = [](int, Store& store) { the_store = &store; }});
  job.expect_good_end();
}

INSTANTIATE_TEST_SUITE_P(Over, BehindALateRank, ::testing::Values("shm", "tcp"),
                         [](const auto& info) { return info.param; });

INSTANTIATE_TEST_SUITE_P(
    In, KilledBehindALateRank,
    ::testing::Values(Scene{"a_window", "shm", "auto", all_reduce<40'000>},
                      Scene{"a_ring_of_memory", "shm", "ring", all_reduce<2'000'000>},
                      Scene{"blocks_in_memory", "shm", "auto", all_to_all},
                      Scene{"a_ring_of_sockets", "tcp", "ring", all_reduce<2'000'000>},
                      Scene{"small_calls_over_sockets", "tcp", "auto", all_reduce<40'000>},
                      Scene{"blocks_over_sockets", "tcp", "auto", all_to_all}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace mccl
