// Tests peers that fall silent while the kernel reports nothing: they are stopped for good, or
// behind a cut cable. The calls have a timeout of half an hour; the liveness interval must end
// them.
#include <algorithm>
#include <vector>

#include "support/hosts.h"
#include "support/processes.h"

namespace mccl {
namespace {

using testing::Hosts;
using testing::Processes;
using testing::test_config;

Config watchful(const std::string& transport, const std::string& algorithm = "auto") {
  Config config = test_config();
  config.transport = transport;
  config.algorithm = algorithm;
  config.calibrate = false;
  config.timeout = 1800;
  config.liveness_interval = 1;
  return config;
}

void all_reduce(Group& group, std::size_t count) {
  std::vector<float> data(count, 1);
  const Buffer buffer{data.data(), count, DType::f32};
  group.all_reduce(buffer, buffer, ReduceKind::sum).wait();
}

void expect_given_up(Processes& job, int survivor, int lost) {
  const std::string error = job.line(survivor, std::chrono::seconds(30));
  EXPECT_NE(error.find("rank " + std::to_string(lost)), std::string::npos) << error;
  EXPECT_NE(error.find("MCCL_LIVENESS_INTERVAL"), std::string::npos)
      << "rank " << survivor << ": " << error;
  EXPECT_NE(error.find(", host "), std::string::npos) << error;
}

struct Scene {
  const char* name;
  const char* transport;
  const char* algorithm;
  void (*call)(Group& group);
};

void PrintTo(const Scene& scene, std::ostream* stream) { *stream << scene.name; }

class StoppedForGood : public ::testing::TestWithParam<Scene> {};

TEST_P(StoppedForGood, IsNoticedAfterTheLivenessInterval) {
  const Scene scene = GetParam();
  Processes job(3,
                [scene](Context& context, const Processes::Say& say) {
                  for (int i = 0;; ++i) {
                    scene.call(*context.world());
                    if (i == 20) say("busy");
                  }
                },
                {.store_address = {},
                 .config_of = [scene](int) { return watchful(scene.transport, scene.algorithm); },
                 .enter = {},
                 .at_the_store = {}});
  for (const int rank : {0, 1, 2}) ASSERT_EQ(job.line(rank), "busy");
  job.signal(1, SIGSTOP);
  for (const int rank : {0, 2}) expect_given_up(job, rank, 1);
}

/// The rank has forked without the functions that close the child's copies of its connections, so
/// its connections do not end with it.
TEST(KilledBesideAChild, IsNoticedBeforeTheLivenessInterval) {
  for (const char* transport : {"auto", "shm"}) {
    Processes job(3,
                  [](Context& context, const Processes::Say& say) {
                    all_reduce(*context.world(), 10);
                    if (context.rank() == 1) {
                      const pid_t child = ::fork();
                      if (child == 0) {
                        for (;;) ::pause();
                      }
                      say(std::to_string(child));
                    }
                    for (;;) all_reduce(*context.world(), 10);
                  },
                  {.store_address = {},
                   .config_of =
                       [transport](int) {
                         Config config = watchful(transport);
                         config.liveness_interval = 10;
                         return config;
                       },
                   .enter = {},
                   .at_the_store = {}});
    const pid_t child = std::stoi(job.line(1));
    job.signal(1, SIGKILL);
    for (const int rank : {0, 2}) {
      const std::string error = job.line(rank, std::chrono::seconds(30));
      EXPECT_NE(error.find("rank 1 is gone: its process has ended"), std::string::npos)
          << transport << ": " << error;
    }
    ::kill(child, SIGKILL);
  }
}

void pass_around(Group& group) {
  std::vector<float> in(100'000), out(100'000);
  const Work sent = group.send({in.data(), in.size(), DType::f32}, (group.rank() + 1) % 3, 0);
  group.recv({out.data(), out.size(), DType::f32}, (group.rank() + 2) % 3, 0).wait();
  sent.wait();
}

INSTANTIATE_TEST_SUITE_P(
    In, StoppedForGood,
    ::testing::Values(
        Scene{"a_window", "shm", "auto", [](Group& group) { all_reduce(group, 1000); }},
        Scene{"a_ring_of_memory", "shm", "ring", [](Group& group) { all_reduce(group, 500'000); }},
        Scene{"a_ring_of_sockets", "tcp", "ring", [](Group& group) { all_reduce(group, 500'000); }},
        Scene{"small_calls_over_sockets", "tcp", "auto",
              [](Group& group) { all_reduce(group, 10); }},
        Scene{"messages_in_memory", "shm", "auto", pass_around},
        Scene{"messages_over_sockets", "tcp", "auto", pass_around}),
    [](const auto& info) { return info.param.name; });

/// The interval begins when the process stops, not when it last sent a message.
TEST(StoppedProcess, IsNoticedAfterTheLivenessInterval) {
  constexpr double kInterval = 2;
  for (const char* transport : {"tcp", "shm"}) {
    Processes job(2,
                  [](Context& context, const Processes::Say& say) {
                    all_reduce(*context.world(), 10);
                    say("met");
                    for (;;) all_reduce(*context.world(), 10);
                  },
                  {.store_address = {},
                   .config_of =
                       [&](int) {
                         Config config = watchful(transport);
                         config.liveness_interval = kInterval;
                         return config;
                       },
                   .enter = {},
                   .at_the_store = {}});
    for (const int rank : {0, 1}) ASSERT_EQ(job.line(rank), "met");
    const auto stopped = std::chrono::steady_clock::now();
    job.signal(1, SIGSTOP);
    expect_given_up(job, 0, 1);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - stopped;
    EXPECT_GE(took.count(), 0.95 * kInterval) << transport;
    EXPECT_LE(took.count(), 1.5 * kInterval) << transport;  // allows for a machine under load
  }
}

/// Liveness depends on the process, not on its calls: a rank that computes for a long time without
/// calling MCCL does not count as silent.
TEST(LongComputation, IsNotTakenForSilence) {
  Processes job(2,
                [](Context& context, const Processes::Say&) {
                  all_reduce(*context.world(), 10);
                  if (context.rank() == 1) {
                    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(4);
                    while (std::chrono::steady_clock::now() < end) {
                    }
                  }
                  all_reduce(*context.world(), 10);
                },
                {.store_address = {},
                 .config_of = [](int) { return watchful("auto"); },
                 .enter = {},
                 .at_the_store = {}});
  job.expect_good_end();
}

/// A rank that was stopped for longer than the interval learns after it resumes that it was given
/// up.
TEST(StoppedTooLong, LearnsThatItWasGivenUp) {
  Processes job(2,
                [](Context& context, const Processes::Say& say) {
                  all_reduce(*context.world(), 10);
                  say("met");
                  for (;;) all_reduce(*context.world(), 10);
                },
                {.store_address = {},
                 .config_of = [](int) { return watchful("tcp"); },
                 .enter = {},
                 .at_the_store = {}});
  for (const int rank : {0, 1}) ASSERT_EQ(job.line(rank), "met");
  job.signal(1, SIGSTOP);
  expect_given_up(job, 0, 1);
  job.signal(1, SIGCONT);
  const std::string error = job.line(1, std::chrono::seconds(30));
  EXPECT_NE(error.find("rank 0"), std::string::npos) << error;
}

/// The data that a call has sent is never acknowledged, and the kernel reports no error in time.
TEST(ACutCable, EndsCallsInTheMiddle) {
  const Hosts hosts;
  if (!hosts.ready()) GTEST_SKIP() << "needs the right to make network namespaces";
  Processes job(2,
                [](Context& context, const Processes::Say& say) {
                  for (int i = 0;; ++i) {
                    all_reduce(*context.world(), 2'000'000);
                    if (i == 3) say("busy");
                  }
                },
                {.store_address = "10.77.0.1:29100",
                 .config_of = [](int) { return watchful("tcp"); },
                 .enter = [&hosts](int rank) { hosts.enter(rank); }});
  for (const int rank : {0, 1}) ASSERT_EQ(job.line(rank), "busy");
  ASSERT_TRUE(hosts.cut());
  expect_given_up(job, 0, 1);
  expect_given_up(job, 1, 0);
}

/// Heartbeats still arrive over a path that drops large packets, so silence alone does not end the
/// calls.
TEST(APathThatLosesLargePackets, EndsCallsAndSaysSo) {
  const Hosts hosts;
  if (!hosts.ready()) GTEST_SKIP() << "needs the right to make network namespaces";
  Processes job(2,
                [](Context& context, const Processes::Say& say) {
                  for (int i = 0;; ++i) {
                    all_reduce(*context.world(), 2'000'000);
                    if (i == 3) say("busy");
                  }
                },
                {.store_address = "10.77.0.1:29100",
                 .config_of = [](int) { return watchful("tcp"); },
                 .enter = [&hosts](int rank) { hosts.enter(rank); },
                 .at_the_store = {}});
  for (const int rank : {0, 1}) ASSERT_EQ(job.line(rank), "busy");
  ASSERT_TRUE(hosts.lose_large_packets(false));
  for (const int rank : {0, 1}) {
    const std::string error = job.line(rank, std::chrono::seconds(30));
    EXPECT_NE(error.find("rank 1 is alive, but its host has acknowledged nothing"),
              std::string::npos)
        << error;
    EXPECT_NE(error.find("MTU"), std::string::npos) << error;
  }
}

/// The interface of the second host now has a smaller MTU. Packets of the existing connections are
/// lost, but new connections learn their size.
TEST(APathThatLosesLargePackets, IsUsedAgainIfNewConnectionsKnowTheSize) {
  const Hosts hosts;
  if (!hosts.ready()) GTEST_SKIP() << "needs the right to make network namespaces";
  Processes job(2,
                [](Context& context, const Processes::Say& say) {
                  std::vector<float> data(2'000'000);
                  const Buffer buffer{data.data(), data.size(), DType::f32};
                  for (int i = 0; data[0] < 2; ++i) {  // until both ranks have repaired a link
                    const bool repaired = context.metrics()->summary().repaired_links > 0;
                    std::ranges::fill(data, repaired ? 1.F : 0.F);
                    context.world()->all_reduce(buffer, buffer, ReduceKind::sum).wait();
                    if (i == 3) say("busy");
                  }
                },
                {.store_address = "10.77.0.1:29100",
                 .config_of = [](int) { return watchful("tcp"); },
                 .enter = [&hosts](int rank) { hosts.enter(rank); },
                 .at_the_store = {}});
  for (const int rank : {0, 1}) ASSERT_EQ(job.line(rank), "busy");
  ASSERT_TRUE(hosts.lose_large_packets(true));
  job.expect_good_end();
}

/// If a rank does not read, its receive window stays full, but its host still answers probes. The
/// sender must not give it up.
TEST(ALateReader, IsNotCutOffAfterThreeIntervals) {
  const Hosts hosts;
  if (!hosts.ready()) GTEST_SKIP() << "needs the right to make network namespaces";
  Processes job(2,
                [](Context& context, const Processes::Say&) {
                  all_reduce(*context.world(), 10);
                  std::vector<float> data(20'000'000, 1);
                  const Buffer buffer{data.data(), data.size(), DType::f32};
                  if (context.rank() == 0) return context.world()->send(buffer, 1, 0).wait();
                  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(3);
                  while (std::chrono::steady_clock::now() < end) {
                  }
                  context.world()->recv(buffer, 0, 0).wait();
                },
                {.store_address = "10.77.0.1:29100",
                 .config_of = [](int) { return watchful("tcp"); },
                 .enter = [&hosts](int rank) { hosts.enter(rank); },
                 .at_the_store = {}});
  job.expect_good_end();
}

}  // namespace
}  // namespace mccl
