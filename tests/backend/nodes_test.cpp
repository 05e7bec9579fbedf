// Tests a group that spans two hosts, with shared memory within each.
#ifdef __linux__

#include <numeric>

#include "support/hosts.h"
#include "support/processes.h"

namespace mccl {
namespace {

using testing::Hosts;
using testing::Processes;
using testing::test_config;

constexpr const char* kStore = "10.77.0.1:29400";

Config config_of(const std::string& transport, const std::string& algorithm) {
  Config config = test_config();
  config.transport = transport;
  config.algorithm = algorithm;
  config.chunk_bytes = 64 << 10;
  config.calibrate = false;
  return config;
}

std::int32_t value_of(int rank, std::size_t i, int call) {
  return static_cast<std::int32_t>((rank + 1) * (i % 1009 + 3) + static_cast<std::size_t>(call));
}

/// Checks sums of several counts, in place and out of place, and broadcasts from every root.
void check_collectives(Group& group) {
  int call = 0;
  for (const std::size_t count : {0, 1, 5, 1000, 100'003, 700'001}) {
    ++call;
    std::vector<std::int32_t> in(count), out(count, -1), sum(count, 0);
    for (std::size_t i = 0; i < count; ++i) {
      in[i] = value_of(group.rank(), i, call);
      for (int rank = 0; rank < group.size(); ++rank) sum[i] += value_of(rank, i, call);
    }
    const std::vector<std::int32_t> before = in;
    group
        .all_reduce({in.data(), count, DType::i32}, {out.data(), count, DType::i32},
                    ReduceKind::sum)
        .wait();
    if (out != sum || in != before) throw Error("a wrong sum of " + std::to_string(count));
    group
        .all_reduce({in.data(), count, DType::i32}, {in.data(), count, DType::i32}, ReduceKind::sum)
        .wait();
    if (in != sum) throw Error("a wrong sum in place of " + std::to_string(count));
    for (int root = 0; root < group.size(); ++root) {
      std::vector<std::int32_t> data(count);
      for (std::size_t i = 0; i < count; ++i) data[i] = value_of(group.rank(), i, call + root);
      group.broadcast({data.data(), count, DType::i32}, root).wait();
      for (std::size_t i = 0; i < count; ++i) {
        if (data[i] != value_of(root, i, call + root)) throw Error("a wrong broadcast");
      }
    }
  }
}

/// Checks that float sums have the same bits on every rank.
void check_agreement(Group& group) {
  const auto ranks = static_cast<std::size_t>(group.size());
  for (const std::size_t count : {3, 70'001}) {
    std::vector<float> data(count), all(count * ranks);
    for (std::size_t i = 0; i < count; ++i) {
      data[i] = 1.0f / static_cast<float>(i + 3 + 7 * static_cast<std::size_t>(group.rank()));
    }
    const Buffer buffer{data.data(), count, DType::f32};
    group.all_reduce(buffer, buffer, ReduceKind::avg).wait();
    group.all_gather(buffer, {all.data(), all.size(), DType::f32}).wait();
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i] != data[i % count]) throw Error("ranks hold different bits");
    }
  }
}

struct Case {
  const char* algorithm;
  std::vector<int> host_of;  // one host per rank
};

void PrintTo(const Case& c, std::ostream* stream) { *stream << c.algorithm; }

class Nodes : public ::testing::TestWithParam<Case> {};

TEST_P(Nodes, AgreeAcrossHosts) {
  const Hosts hosts;
  if (!hosts.ready()) GTEST_SKIP() << "`ip netns` cannot make hosts here (it needs root)";
  const Case& c = GetParam();
  Processes job(
      static_cast<int>(c.host_of.size()),
      [](Context& context, const Processes::Say&) {
        check_collectives(*context.world());
        check_agreement(*context.world());
        context.world()->barrier().wait();
      },
      {.store_address = kStore,
       .config_of = [&](int) { return config_of("auto", c.algorithm); },
       .enter = [&](int rank) { hosts.enter(c.host_of[static_cast<std::size_t>(rank)]); }});
  job.expect_good_end();
}

INSTANTIATE_TEST_SUITE_P(Hosts, Nodes,
                         ::testing::Values(Case{"hierarchical", {0, 0, 1, 1}},
                                           Case{"hierarchical", {0, 1, 0, 1, 0}},
                                           Case{"hierarchical", {0, 1, 1}},
                                           Case{"auto", {0, 1, 1, 0}},
                                           Case{"one_shot", {0, 0, 1, 1}}));

/// Rank 2 is on the host of the killed rank, and rank 0 on the other.
TEST(Nodes, AKilledRankIsNamedOnEveryHost) {
  const Hosts hosts;
  if (!hosts.ready()) GTEST_SKIP() << "`ip netns` cannot make hosts here (it needs root)";
  Processes job(4,
                [](Context& context, const Processes::Say& say) {
                  std::vector<float> data(200'000);
                  const Buffer buffer{data.data(), data.size(), DType::f32};
                  for (int i = 0;; ++i) {
                    context.world()->all_reduce(buffer, buffer, ReduceKind::sum).wait();
                    if (i == 5) say("busy");
                  }
                },
                {.store_address = kStore,
                 .config_of = [](int) { return config_of("auto", "hierarchical"); },
                 .enter = [&](int rank) { hosts.enter(rank / 2); }});
  for (const int rank : {0, 1, 2, 3}) ASSERT_EQ(job.line(rank), "busy");
  job.signal(3, SIGKILL);
  for (const int rank : {0, 1, 2}) {
    const std::string error = job.line(rank, std::chrono::seconds(20));
    EXPECT_NE(error.find("rank 3"), std::string::npos) << "rank " << rank << ": " << error;
    EXPECT_NE(error.find("is gone"), std::string::npos) << "rank " << rank << ": " << error;
  }
}

TEST(Nodes, ThatMustShareMemoryButCannotAreAClearError) {
  const Hosts hosts;
  if (!hosts.ready()) GTEST_SKIP() << "`ip netns` cannot make hosts here (it needs root)";
  Processes job(3, [](Context&, const Processes::Say&) {},
                {.store_address = kStore,
                 .config_of = [](int) { return config_of("shm", "auto"); },
                 .enter = [&](int rank) { hosts.enter(rank == 2 ? 1 : 0); }});
  for (const int rank : {0, 1, 2}) {
    const std::string error = job.line(rank);
    EXPECT_NE(error.find("MCCL_TRANSPORT is shm, but rank " + std::to_string(rank)),
              std::string::npos)
        << error;
    EXPECT_NE(error.find("auto"), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace mccl

#endif  // __linux__
