// Tests the warnings that name the ranks for which a call waits, long before the call times out.
#include <set>

#include "support/processes.h"

namespace mccl {
namespace {

using testing::Processes;
using testing::test_config;

/// A pipe of this process, which its children inherit.
class Pipe {
 public:
  Pipe() {
    if (::pipe(ends_) != 0) throw Error("no pipe");
  }
  ~Pipe() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int input() const { return ends_[1]; }
  void write_byte() const { EXPECT_EQ(::write(ends_[1], "x", 1), 1); }
  void await_byte() const {
    char byte = 0;
    EXPECT_EQ(::read(ends_[0], &byte, 1), 1);
  }
  /// Reads lines until each of `ranks` has logged a line that contains `part`. Returns all lines.
  std::string lines_until(std::set<int> ranks, const std::string& part) {
    std::string all, line;
    for (char byte = 0; !ranks.empty();) {
      pollfd entry = {ends_[0], POLLIN, 0};
      if (::poll(&entry, 1, 60'000) != 1 || ::read(ends_[0], &byte, 1) != 1) {
        ADD_FAILURE() << "no rank logged \"" << part << "\": " << all;
        break;
      }
      line += byte;
      if (byte != '\n') continue;
      for (const int rank : {0, 1, 2}) {
        const bool is_of_rank =
            line.find("rank " + std::to_string(rank) + "]") != std::string::npos;
        if (is_of_rank && line.find(part) != std::string::npos) ranks.erase(rank);
      }
      all += std::exchange(line, {});
    }
    return all;
  }

 private:
  int ends_[2];
};

void all_reduce(Group& group) {
  std::vector<float> data(1000, 1);
  const Buffer buffer{data.data(), data.size(), DType::f32};
  group.all_reduce(buffer, buffer, ReduceKind::sum).wait();
}

class SlowRank : public ::testing::TestWithParam<const char*> {
 protected:
  /// Starts three ranks that log to `log_`.
  Processes start(const Processes::Body& body) {
    return Processes(3, body,
                     {.store_address = {},
                      .config_of =
                          [transport = GetParam()](int) {
                            Config config = test_config();
                            config.transport = transport;
                            config.log_level = "WARN";
                            config.warn_after = 0.2;
                            config.liveness_interval = 4;
                            return config;
                          },
                      .enter = [this](int) { ::dup2(log_.input(), STDERR_FILENO); },
                      .at_the_store = {}});
  }

  Pipe log_;
  Pipe go_;
};

TEST_P(SlowRank, IsNamedWithItsLastCall) {
  Processes job = start([this](Context& context, const Processes::Say&) {
    all_reduce(*context.world());
    if (context.rank() == 1) go_.await_byte();
    all_reduce(*context.world());
  });
  log_.lines_until({0, 2},
                   "all_reduce #2 (sum of 1000 f32) of group 'world' has made no progress for");
  log_.lines_until(
      {0, 2},
      "waiting for rank 1 (which has called no collective of this group since all_reduce #1 ");
  go_.write_byte();
  job.expect_good_end();
}

/// Rank 0 ends the reduce once it has sent its data. Rank 1, the root, waits for rank 2.
TEST_P(SlowRank, IsNamedWithTheCallThatItWaitsIn) {
  Processes job = start([this](Context& context, const Processes::Say&) {
    all_reduce(*context.world());
    if (context.rank() == 2) go_.await_byte();
    int value = 1;
    const Buffer all{&value, 1, DType::i32};
    context.world()->reduce(all, all, ReduceKind::sum, 1).wait();
    context.world()->barrier().wait();
  });
  const std::string said =
      log_.lines_until({0, 1}, "rank 2 (which has called no collective of this");
  if (said.find("rank 1 (which is in reduce #2 ") == std::string::npos)
    log_.lines_until({0}, "rank 1 (which is in reduce #2 ");
  go_.write_byte();
  job.expect_good_end();
}

TEST_P(SlowRank, DoesNotLogWhileItIsStopped) {
  Processes job = start([this](Context& context, const Processes::Say& say) {
    all_reduce(*context.world());
    say("ready");
    if (context.rank() == 1) go_.await_byte();
    all_reduce(*context.world());
  });
  for (const int rank : {0, 1, 2}) ASSERT_EQ(job.line(rank), "ready");
  job.signal(1, SIGSTOP);
  log_.lines_until({0, 2}, "waiting for rank 1 (which is silent: its process is stopped");
  job.signal(1, SIGCONT);
  go_.write_byte();
  job.expect_good_end();
}

TEST_P(SlowRank, IsNamedByAReceiver) {
  Processes job = start([this](Context& context, const Processes::Say&) {
    std::vector<float> data(10);
    const Buffer buffer{data.data(), data.size(), DType::f32};
    if (context.rank() == 1) go_.await_byte();
    if (context.rank() == 1) context.world()->send(buffer, 0, 7).wait();
    if (context.rank() == 0) context.world()->recv(buffer, 1, 7).wait();
  });
  const std::string lines = log_.lines_until({0}, "recv from rank 1 (tag 7, 10 f32)");
  EXPECT_NE(lines.find(" s, and no matching message arrived"), std::string::npos) << lines;
  go_.write_byte();
  job.expect_good_end();
}

/// Rank 0 waits for a message of rank 1, which itself waits for a message of rank 2.
TEST_P(SlowRank, IsNamedByAReceiverFromAnotherRank) {
  Processes job = start([this](Context& context, const Processes::Say&) {
    std::vector<float> data(10);
    const Buffer buffer{data.data(), data.size(), DType::f32};
    Group& world = *context.world();
    if (context.rank() == 1) world.send(buffer, 0, 7).wait();
    if (context.rank() == 2) go_.await_byte();
    if (context.rank() == 2) world.send(buffer, 1, 7).wait();
    if (context.rank() == 1) world.recv(buffer, 2, 7).wait();
    if (context.rank() == 1) world.send(buffer, 0, 7).wait();
    if (context.rank() == 0) world.recv(buffer, 1, 7).wait();
    if (context.rank() == 0) world.recv(buffer, 1, 7).wait();
  });
  log_.lines_until({0},
                   "no matching message arrived from rank 1 after message 1; this rank waits for "
                   "rank 1 (which has called no collective of this group yet, and whose oldest "
                   "pending message needs rank 2)");
  go_.write_byte();
  job.expect_good_end();
}

INSTANTIATE_TEST_SUITE_P(Over, SlowRank, ::testing::Values("shm", "tcp"));

}  // namespace
}  // namespace mccl
