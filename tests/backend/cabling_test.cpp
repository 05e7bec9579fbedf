// Tests jobs whose ranks are joined by cables. All ranks are threads of one process, and each rank
// can connect only to its neighbours.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "backend/conformance/checks.h"
#include "mccl/context.h"
#include "mccl/error.h"
#include "rendezvous/cabling/wiring.h"
#include "rendezvous/meeting/join.h"
#include "support/free_places.h"

namespace mccl {
namespace {

using rendezvous::AddressTable;
using rendezvous::Wiring;
using support::free_places;
using Joined = std::function<bool(int, int)>;

Clock::time_point soon() { return Clock::now() + std::chrono::seconds(60); }

rendezvous::WiringOptions wiring_of(int rank, const AddressTable& table, const Config& config,
                                    const Joined& joined) {
  return {.rank = rank,
          .table = table,
          .config = config,
          .deadline = soon(),
          .may_reach = [rank, joined](int peer) { return joined(rank, peer); }};
}

std::shared_ptr<Context> join(int rank, const AddressTable& table, const Joined& joined,
                              const std::string& encryption = "off") {
  ContextOptions options;
  options.config.encryption = encryption;
  options.config.job_key = "a key of these tests";
  options.config.liveness_interval = 20;
  auto wiring = std::make_shared<Wiring>(wiring_of(rank, table, options.config, joined));
  wiring->wait();
  options.rank = rank;
  options.size = static_cast<int>(table.size());
  options.config.backend = "native";
  options.config.transport = "tcp";
  options.store =
      rendezvous::make_wired_store(wiring, rank, {.job_key = options.config.job_key},
                                   std::chrono::seconds(60), {{.level = "WARN"}, nullptr});
  options.wiring = std::move(wiring);
  return Context::create(options);
}

/// Runs `body` on every rank and rethrows the error of the lowest rank that failed. Returns the
/// contexts after their shutdown.
std::vector<std::shared_ptr<Context>> run_at(const AddressTable& table, const Joined& joined,
                                             const std::function<void(Context&)>& body,
                                             const std::string& encryption = "off") {
  const auto size = static_cast<int>(table.size());
  std::vector<std::shared_ptr<Context>> contexts(table.size());
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        auto& context = contexts[static_cast<std::size_t>(rank)];
        context = join(rank, table, joined, encryption);
        body(*context);
        context->shutdown();
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
        contexts[static_cast<std::size_t>(rank)].reset();  // others wait for relayed data
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return contexts;
}

void run(int size, const Joined& joined, const std::function<void(Context&)>& body,
         const std::string& encryption = "off") {
  run_at(free_places(size), joined, body, encryption);
}

bool in_a_line(int a, int b) { return a + 1 == b || b + 1 == a; }
bool in_a_ring_of_four(int a, int b) { return (a + 1) % 4 == b || (b + 1) % 4 == a; }

using conformance::Check;

struct Shape {
  const char* name;
  int size;
  bool (*joined)(int, int);
  const char* encryption = "off";
};

class CableConformance : public ::testing::TestWithParam<std::tuple<Shape, Check>> {};

TEST_P(CableConformance, Holds) {
  const auto& [shape, check] = GetParam();
  run(
      shape.size, shape.joined,
      [&check](Context& context) {
        if (context.size() >= check.least) check.run(context);
      },
      shape.encryption);
}

std::string name_on_cables(const ::testing::TestParamInfo<std::tuple<Shape, Check>>& info) {
  const auto& [shape, check] = info.param;
  return std::string(check.name) + "_" + shape.name;
}

const Shape kShapes[] = {{"ring", 4, in_a_ring_of_four},
                         {"line", 3, in_a_line},
                         {"encrypted_ring", 4, in_a_ring_of_four, "on"}};

INSTANTIATE_TEST_SUITE_P(Collectives, CableConformance,
                         ::testing::Combine(::testing::ValuesIn(kShapes),
                                            ::testing::ValuesIn(conformance::collective_checks())),
                         name_on_cables);
INSTANTIATE_TEST_SUITE_P(Messages, CableConformance,
                         ::testing::Combine(::testing::Values(kShapes[0], kShapes[2]),
                                            ::testing::ValuesIn(conformance::message_checks())),
                         name_on_cables);
INSTANTIATE_TEST_SUITE_P(Groups, CableConformance,
                         ::testing::Combine(::testing::Values(kShapes[0]),
                                            ::testing::ValuesIn(conformance::group_checks())),
                         name_on_cables);

void sum_and_talk(Context& context) {
  Group& world = *context.world();
  const int size = world.size();
  for (const std::size_t count : {std::size_t{3}, std::size_t{200'000}}) {
    std::vector<float> data(count, static_cast<float>(world.rank()));
    const Buffer buffer{data.data(), data.size(), DType::f32};
    world.all_reduce(buffer, buffer, ReduceKind::sum, {}).wait();
    EXPECT_EQ(data.back(), static_cast<float>(size * (size - 1) / 2));
  }
  // Each rank exchanges messages with all others at once, over shared cables.
  std::vector<std::vector<int>> in(static_cast<std::size_t>(size), std::vector<int>(100'000));
  const std::vector<int> out(100'000, world.rank());
  std::vector<Work> works;
  for (int peer = 0; peer < size; ++peer) {
    if (peer == world.rank()) continue;
    auto& place = in[static_cast<std::size_t>(peer)];
    works.push_back(world.recv({place.data(), place.size(), DType::i32}, peer, 0, {}));
    works.push_back(world.send({out.data(), out.size(), DType::i32}, peer, 0, {}));
  }
  for (Work& work : works) work.wait();
  for (int peer = 0; peer < size; ++peer) {
    if (peer == world.rank()) continue;
    EXPECT_EQ(in[static_cast<std::size_t>(peer)].back(), peer);
  }
}

TEST(Cables, ARingOfFour) { run(4, in_a_ring_of_four, sum_and_talk); }

TEST(Cables, ALineOfFive) { run(5, in_a_line, sum_and_talk); }

TEST(Cables, AStarAroundTheLastRank) {
  run(
      4, [](int a, int b) { return a == 3 || b == 3; }, sum_and_talk);
}

TEST(Cables, NoRankRelaysIfAllReachEachOther) {
  run(
      3, [](int, int) { return true; }, sum_and_talk);
}

TEST(Cables, ARankInTheMiddleMayEndFirst) {
  run(3, in_a_line, [](Context& context) {
    Group& world = *context.world();
    world.barrier({}).wait();
    if (world.rank() == 1) return;
    std::vector<int> data(1000, world.rank());
    const Buffer buffer{data.data(), data.size(), DType::i32};
    for (int i = 0; i < 50; ++i) {
      if (world.rank() == 0) world.send(buffer, 2, 0, {}).wait();
      if (world.rank() == 2) world.recv(buffer, 0, 0, {}).wait();
    }
  });
}

TEST(Cables, ARankNumberIsFreeAgainAfterItsRankLeft) {
  const AddressTable table = free_places(3);
  const auto left = run_at(table, in_a_line, sum_and_talk);
  run_at(table, in_a_line, sum_and_talk);
}

/// Rank 2 agrees on the cables and then dies before it connects to the store.
TEST(Cables, ARankThatDiesWhileTheRanksMeetIsNamedByAll) {
  constexpr int kDying = 2;
  const AddressTable table = free_places(4);
  const pid_t dying = ::fork();
  if (dying == 0) {
    Config config;
    config.job_key = "a key of these tests";
    config.log_level = "OFF";
    Wiring wiring(wiring_of(kDying, table, config, in_a_ring_of_four));
    wiring.wait();
    ::raise(SIGKILL);
  }
  std::vector<std::string> errors(4);
  std::vector<std::thread> threads;
  for (const int rank : {0, 1, 3}) {
    threads.emplace_back([&, rank] {
      try {
        join(rank, table, in_a_ring_of_four);
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int rank : {0, 1, 3}) {
    const std::string& error = errors[static_cast<std::size_t>(rank)];
    EXPECT_NE(error.find("rank 2 died while the ranks connected"), std::string::npos)
        << rank << ": " << error;
  }
  ::waitpid(dying, nullptr, 0);
}

TEST(Cables, TheErrorNamesDisconnectedParts) {
  const AddressTable table = free_places(3);
  Config config;
  config.job_key = "key";
  config.log_level = "OFF";
  Wiring alone({.rank = 0,
                .table = table,
                .config = config,
                .deadline = Clock::now() + std::chrono::milliseconds(300)});
  try {
    alone.wait();
    FAIL() << "a rank without cables has connected";
  } catch (const TimeoutError& error) {
    EXPECT_NE(std::string(error.what()).find("no cable leads from rank 0 to ranks 1, 2"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace mccl
