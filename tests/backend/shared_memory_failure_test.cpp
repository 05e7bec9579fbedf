// Tests failures of processes that share memory: one dies or is stopped, or cannot share memory
// although it is on the same host.
#include <sys/resource.h>

#include <set>

#include "support/processes.h"

namespace mccl {
namespace {

using testing::Processes;
using testing::test_config;

Config shared_memory(const std::string& algorithm = "auto") {
  Config config = test_config();
  config.transport = "shm";
  config.algorithm = algorithm;
  config.calibrate = false;
  return config;
}

void all_reduce(Group& group, std::size_t count, const CallOptions& options = {}) {
  std::vector<float> data(count, 1);
  const Buffer buffer{data.data(), count, DType::f32};
  group.all_reduce(buffer, buffer, ReduceKind::sum, options).wait();
}

/// The calls that run when a rank is killed.
struct Scene {
  const char* name;
  const char* algorithm;
  void (*call)(Group& group);
};

void PrintTo(const Scene& scene, std::ostream* stream) { *stream << scene.name; }

class Killed : public ::testing::TestWithParam<Scene> {};

/// Rank 1 of three is killed while all are busy. If its death were not detected, the calls would
/// wait for a minute.
TEST_P(Killed, IsAnErrorThatNamesTheRank) {
  for (int round = 0; round < 3; ++round) {
    Processes job(3,
                  [](Context& context, const Processes::Say& say) {
                    for (int i = 0;; ++i) {
                      GetParam().call(*context.world());
                      if (i == 20) say("busy");
                    }
                  },
                  {.store_address = {},
                   .config_of = [](int) { return shared_memory(GetParam().algorithm); },
                   .enter = {},
                   .at_the_store = {}});
    for (const int rank : {0, 1, 2}) ASSERT_EQ(job.line(rank), "busy");
    job.signal(1, SIGKILL);
    for (const int rank : {0, 2}) {
      const std::string error = job.line(rank, std::chrono::seconds(20));
      EXPECT_NE(error.find("rank 1"), std::string::npos) << "rank " << rank << ": " << error;
      EXPECT_NE(error.find("is gone"), std::string::npos) << "rank " << rank << ": " << error;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    While, Killed,
    ::testing::Values(
        Scene{"all_reduces", "auto", [](Group& group) { all_reduce(group, 500'000); }},
        Scene{"small_all_reduces", "auto", [](Group& group) { all_reduce(group, 2); }},
        Scene{"in_a_ring", "ring", [](Group& group) { all_reduce(group, 500'000); }},
        Scene{"small_broadcasts", "auto",
              [](Group& group) {
                float value = 1;
                group.broadcast({&value, 1, DType::f32}, 0).wait();
              }},
        Scene{"large_broadcasts", "auto",
              [](Group& group) {
                std::vector<float> data(3'000'000);
                group.broadcast({data.data(), data.size(), DType::f32}, 2).wait();
              }},
        Scene{"messages", "auto",
              [](Group& group) {
                std::vector<float> in(100'000), out(100'000);
                const Work sent =
                    group.send({in.data(), in.size(), DType::f32}, (group.rank() + 1) % 3, 0);
                group.recv({out.data(), out.size(), DType::f32}, (group.rank() + 2) % 3, 0).wait();
                sent.wait();
              }}),
    [](const auto& info) { return info.param.name; });

/// The killed rank is asleep and waits for the others. After its death, its wake-up socket has no
/// reader.
TEST(KilledWhileAsleep, HarmsNoOtherProcess) {
  Processes job(2,
                [](Context& context, const Processes::Say& say) {
                  all_reduce(*context.world(), 10);
                  say("met");
                  if (context.rank() == 0) {
                    char token = 0;
                    context.world()->recv({&token, 1, DType::u8}, 1, 0).wait();
                  }
                  for (;;) all_reduce(*context.world(), 10);
                },
                {.store_address = {},
                 .config_of = [](int) { return shared_memory(); },
                 .enter = {},
                 .at_the_store = {}});
  for (const int rank : {0, 1}) ASSERT_EQ(job.line(rank), "met");
  job.signal(1, SIGKILL);
  const std::string error = job.line(0, std::chrono::seconds(20));
  EXPECT_NE(error.find("rank 1"), std::string::npos) << error;
}

TEST(StoppedRank, IsATimeoutThatNamesIt) {
  for (const char* algorithm : {"auto", "ring"}) {
    Processes job(3,
                  [](Context& context, const Processes::Say& say) {
                    all_reduce(*context.world(), 10);
                    say("met");
                    for (;;) {
                      all_reduce(*context.world(), 100'000,
                                 {.timeout = std::chrono::milliseconds(1500)});
                    }
                  },
                  {.store_address = {},
                   .config_of = [&](int) { return shared_memory(algorithm); },
                   .enter = {},
                   .at_the_store = {}});
    for (const int rank : {0, 1, 2}) ASSERT_EQ(job.line(rank), "met");
    job.signal(1, SIGSTOP);
    std::string errors;
    for (const int rank : {0, 2}) {
      const std::string error = job.line(rank, std::chrono::seconds(30));
      EXPECT_NE(error.find("timed out"), std::string::npos) << "rank " << rank << ": " << error;
      errors += error;
    }
    EXPECT_NE(errors.find("rank 1"), std::string::npos) << errors;
  }
}

TEST(StoppedRank, ThatContinuesInTimeIsNoError) {
  Processes job(3,
                [](Context& context, const Processes::Say& say) {
                  for (int i = 0; i < 2000; ++i) {
                    all_reduce(*context.world(), 1 + static_cast<std::size_t>(i) % 1000);
                    if (i == 20) say("busy");
                  }
                },
                {.store_address = {},
                 .config_of = [](int) { return shared_memory(); },
                 .enter = {},
                 .at_the_store = {}});
  for (const int rank : {0, 1, 2}) ASSERT_EQ(job.line(rank), "busy");
  for (int i = 0; i < 20; ++i) {
    job.signal(i % 3, SIGSTOP);
    ::usleep(2000);
    job.signal(i % 3, SIGCONT);
  }
  job.expect_good_end();
}

TEST(OversubscribedCores, EightRanksFinish) {
  Processes job(8,
                [](Context& context, const Processes::Say&) {
                  Group& group = *context.world();
                  for (int i = 0; i < 300; ++i) {
                    std::vector<std::int32_t> data(i % 50 == 0 ? 300'000 : 5, group.rank());
                    const Buffer buffer{data.data(), data.size(), DType::i32};
                    group.all_reduce(buffer, buffer, ReduceKind::sum).wait();
                    if (data.front() != 28 || data.back() != 28) throw Error("a wrong sum");
                  }
                  group.barrier().wait();
                },
                {.store_address = {},
                 .config_of = [](int) { return shared_memory(); },
                 .enter = {},
                 .at_the_store = {}});
  job.expect_good_end();
}

/// Limits the file size of a rank below the size of an arena.
void forbid_large_files() {
  const rlimit limit = {1 << 20, 1 << 20};
  if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) throw Error("no limit");
}

TEST(ARankThatCannotShare, IsAnErrorIfSharedMemoryIsRequired) {
  Processes job(3, [](Context&, const Processes::Say&) {},
                {.store_address = {},
                 .config_of = [](int) { return shared_memory(); },
                 .enter =
                     [](int rank) {
                       if (rank == 2) forbid_large_files();
                     }});
  for (const int rank : {0, 1, 2}) {
    const std::string error = job.line(rank);
    EXPECT_NE(error.find("MCCL_TRANSPORT is shm"), std::string::npos) << rank << ": " << error;
    EXPECT_NE(error.find("rank " + std::to_string(rank)), std::string::npos) << error;
  }
}

/// The rank's log is read from its standard error.
TEST(ARankThatCannotShare, IsReachedThroughTcpWithAWarning) {
  int log[2];
  ASSERT_EQ(::pipe(log), 0);
  {
    Processes job(3,
                  [](Context& context, const Processes::Say&) {
                    all_reduce(*context.world(), 100'000);
                    all_reduce(*context.world(), 10);
                    context.world()->barrier().wait();
                  },
                  {.store_address = {},
                   .config_of =
                       [](int) {
                         Config config = shared_memory();
                         config.transport = "auto";
                         config.log_level = "WARN";
                         return config;
                       },
                   .enter =
                       [&](int rank) {
                         ::dup2(log[1], STDERR_FILENO);
                         if (rank == 2) forbid_large_files();
                       }});
    job.expect_good_end();
  }
  ::close(log[1]);
  std::string text(1 << 16, '\0');
  const ssize_t n = ::read(log[0], text.data(), text.size());
  ::close(log[0]);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  EXPECT_NE(text.find("no memory is shared with other ranks"), std::string::npos) << text;
  EXPECT_NE(text.find("ulimit -f"), std::string::npos) << text;
  EXPECT_NE(text.find("these ranks of the same host: 2 (another container"), std::string::npos)
      << text;
}

}  // namespace
}  // namespace mccl
