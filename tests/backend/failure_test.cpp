// Tests that a failure on one rank is a clear error on every rank, in bounded time.
#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "rendezvous/connections/candidates.h"
#include "rendezvous/store/exchange.h"
#include "rendezvous/store/incarnation.h"
#include "rendezvous/store/key_agreement.h"
#include "support/ranks.h"
#include "transport/rdma/survey/survey.h"
#include "transport/tcp/interfaces.h"
#include "transport/tcp/listener.h"

namespace mccl {
namespace {

using testing::run_failing_ranks;
using testing::run_ranks;
using testing::test_config;

constexpr DType kType = DType::f32;

void all_reduce(Group& group, std::size_t count, const CallOptions& options = {}) {
  std::vector<float> data(count, 1);
  group
      .all_reduce({data.data(), count, kType}, {data.data(), count, kType}, ReduceKind::sum,
                  options)
      .wait();
}

void expect_all(const std::vector<std::string>& errors, const std::vector<std::string>& words) {
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    for (const std::string& word : words) {
      EXPECT_NE(errors[rank].find(word), std::string::npos)
          << "rank " << rank << " said '" << errors[rank] << "', expected '" << word << "'";
    }
  }
}

TEST(Mismatch, OfCountsNamesBothCalls) {
  for (const std::size_t count : {std::size_t{5}, std::size_t{400'000}}) {
    const auto errors = run_failing_ranks(3, [count](Context& context) {
      all_reduce(*context.world(), 10);
      all_reduce(*context.world(), context.rank() == 1 ? count + 1 : count);
    });
    expect_all(errors, {"all_reduce #2 (sum of " + std::to_string(count) + " f32)",
                        "all_reduce #2 (sum of " + std::to_string(count + 1) + " f32)", "rank 1"});
  }
}

TEST(Mismatch, OfCollectivesNamesBothCalls) {
  const auto errors = run_failing_ranks(4, [](Context& context) {
    if (context.rank() == 2) {
      context.world()->barrier().wait();
    } else {
      all_reduce(*context.world(), 1000);
    }
    context.world()->barrier().wait();
  });
  expect_all(errors, {"barrier #1", "all_reduce #1"});
}

TEST(Mismatch, OfOperationsAndTypesAndRoots) {
  const auto kinds = run_failing_ranks(2, [](Context& context) {
    float one = 1;
    const Buffer data{&one, 1, kType};
    context.world()
        ->all_reduce(data, data, context.rank() == 0 ? ReduceKind::min : ReduceKind::max)
        .wait();
  });
  expect_all(kinds, {"min of 1 f32", "max of 1 f32"});
  const auto types = run_failing_ranks(2, [](Context& context) {
    float one = 1;
    const Buffer data{&one, 1, context.rank() == 0 ? DType::f32 : DType::i32};
    context.world()->all_reduce(data, data, ReduceKind::sum).wait();
  });
  expect_all(types, {"sum of 1 f32", "sum of 1 i32"});
  const auto roots = run_failing_ranks(3, [](Context& context) {
    float one = 1;
    context.world()->broadcast({&one, 1, kType}, context.rank() == 1 ? 1 : 0).wait();
    context.world()->barrier().wait();
  });
  expect_all(roots, {"root 0", "root 1"});
}

TEST(Mismatch, OfSplitsInAllToAll) {
  const auto errors = run_failing_ranks(2, [](Context& context) {
    std::vector<float> in(4);
    std::vector<float> out(4);
    // Rank 0 sends two elements to rank 1, which expects one.
    const std::vector<std::size_t> counts =
        context.rank() == 0 ? std::vector<std::size_t>{2, 2} : std::vector<std::size_t>{1, 3};
    context.world()
        ->all_to_allv({in.data(), 4, kType}, counts, {out.data(), 4, kType}, counts)
        .wait();
    context.world()->barrier().wait();
  });
  expect_all(errors, {"disagree about counts"});
}

TEST(Timeout, NamesTheMissingRank) {
  const auto errors = run_failing_ranks(3, [](Context& context) {
    all_reduce(*context.world(), 4);
    if (context.rank() == 2) {
      // Makes its second call only after the others' call has timed out and they have announced
      // this.
      while (context.world()->failure().empty()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      all_reduce(*context.world(), 4);
    } else {
      all_reduce(*context.world(), 1'000'000, {.timeout = std::chrono::milliseconds(1500)});
    }
  });
  expect_all(errors, {"all_reduce #2", "timed out", "rank 2", "all_reduce #1"});
}

/// Returns the time until a call of the group fails that rank 1 does not make.
std::chrono::duration<double> time_to_failure(Group& group, std::size_t count,
                                              std::chrono::milliseconds timeout) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THROW(all_reduce(group, count, {.timeout = timeout}), TimeoutError);
  return std::chrono::steady_clock::now() - start;
}

TEST(Timeout, EndsACallWithin100MillisecondsOfItsTime) {
  constexpr std::chrono::milliseconds kTimeout{150};
  for (const char* transport : {"shm", "tcp"}) {
    std::vector<std::chrono::duration<double>> times;
    const auto with_transport = [transport](int) {
      Config config = test_config();
      config.transport = transport;
      return config;
    };
    run_ranks(
        2,
        [&times, kTimeout](Context& context) {
          int round = 0;
          for (const std::size_t count : {1u, 1u, 1u, 1000u, 1000u, 1000u, 1u << 20}) {
            const auto group = context.group(std::to_string(++round), {0, 1}, kTimeout);
            context.world()->barrier().wait();
            if (context.rank() == 0) times.push_back(time_to_failure(*group, count, kTimeout));
            context.world()->barrier().wait();
          }
        },
        with_transport);
    // The median is not affected by a moment in which this machine is busy.
    std::ranges::sort(times);
    EXPECT_GE(times.front(), kTimeout) << transport;
    EXPECT_LE(times[times.size() / 2], kTimeout + std::chrono::milliseconds(100)) << transport;
  }
}

/// Rank 1 waits for rank 0, which waits for the others and finally for rank 3.
TEST(Timeout, NamesTheMissingRankBehindRanksThatWaitToo) {
  const auto ring = [](int) {
    Config config = test_config();
    config.algorithm = "ring";
    return config;
  };
  const auto errors = run_failing_ranks(
      5,
      [](Context& context) {
        all_reduce(*context.world(), 4);
        if (context.rank() == 3) {
          while (context.world()->failure().empty())
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
        const int ms = context.rank() == 1 ? 1500 : 60'000;
        all_reduce(*context.world(), 1'000'000, {.timeout = std::chrono::milliseconds(ms)});
      },
      ring);
  expect_all(
      errors,
      {"waiting for rank 3 (which has called no collective of this group since all_reduce #1"});
  for (const std::string& error : errors) EXPECT_EQ(error.find("waiting for rank 0"), error.npos);
}

/// A timeout while ranks connect must not leave a thread that is never joined: that would end the
/// process.
TEST(Timeout, OfConnectingIsAnErrorThatLeavesNoThread) {
  const std::shared_ptr<Store> store = make_memory_store();
  Config config = test_config();
  config.connect_timeout = 3;
  config.job_key = "a key that both were given";
  std::thread absent([&] {  // publishes what a rank publishes, but never connects
    using namespace rendezvous;
    Incarnation start(store, {1, 2, rendezvous::agreement_of_arrival(config)},
                      std::chrono::seconds(60));
    const Exchange exchange(start, secret_of_run(config.job_key, start.name()), 1, 2,
                            Clock::now() + std::chrono::seconds(60));
    exchange.all_gather("places", transport::tcp::host_identity() + "\n- 0 -");
    const transport::tcp::Listener mute(*transport::tcp::Address::parse_numeric("127.0.0.1", 0), 0);
    const Endpoint endpoint{
        1, transport::tcp::host_identity(), mute.address().port(), {"127.0.0.1"}, false};
    exchange.all_gather("endpoints",
                        "-\n" + transport::rdma::serialise({}) + "\n" + serialise(endpoint));
    EXPECT_THROW(start.get("never", std::chrono::seconds(60)), PeerError);
  });
  try {
    Context::create({0, 2, store, config, nullptr});
    ADD_FAILURE() << "rank 1 connected";
  } catch (const TimeoutError& error) {
    expect_all({error.what()}, {"rank 1", "MCCL_CONNECT_TIMEOUT"});
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
  }
  absent.join();
  run_ranks(2, [](Context& context) { all_reduce(*context.world(), 1000); });
}

/// Another thread can abort a call that makes no progress.
TEST(Abort, FreesACallThatIsStuck) {
  const auto errors = run_failing_ranks(2, [](Context& context) {
    Group& group = *context.world();
    if (context.rank() == 1) {
      while (group.failure().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      all_reduce(group, 4);
    }
    std::thread aborter([&group] { group.abort("enough"); });
    try {
      all_reduce(group, 1'000'000);
    } catch (...) {
      aborter.join();
      throw;
    }
    aborter.join();
  });
  expect_all(errors, {"enough"});
}

TEST(Departure, TheErrorNamesTheRankThatLeft) {
  const auto errors = run_failing_ranks(3, [](Context& context) {
    all_reduce(*context.world(), 4);
    if (context.rank() == 2) throw std::runtime_error("rank 2 leaves");
    all_reduce(*context.world(), 1'000'000);
  });
  expect_all(errors, {"rank 2"});
}

TEST(Settings, ThatDifferAreAnErrorOnEveryRank) {
  const auto errors = run_failing_ranks(
      3, [](Context&) {},
      [](int rank) {
        Config config = test_config();
        if (rank == 1) config.chunk_bytes = 1 << 20;
        return config;
      });
  expect_all(errors, {"chunk_bytes", "1048576", "4194304"});
}

TEST(Settings, RefusesARankWithAWrongKey) {
  const auto errors = run_failing_ranks(
      2, [](Context&) {},
      [](int rank) {
        Config config = test_config();
        config.connect_timeout = 2;
        config.job_key = rank == 0 ? "right" : "wrong";
        return config;
      });
  for (const std::string& error : errors) EXPECT_FALSE(error.empty());
}

}  // namespace
}  // namespace mccl
