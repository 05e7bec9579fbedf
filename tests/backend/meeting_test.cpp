// Tests ranks that cannot connect to each other. Each rank must report the reason soon.
#include <sched.h>
#include <sys/resource.h>

#include <future>
#include <thread>

#include "base/cores.h"
#include "engine/engine.h"
#include "rendezvous/connections/candidates.h"
#include "rendezvous/store/exchange.h"
#include "rendezvous/store/incarnation.h"
#include "rendezvous/store/key_agreement.h"
#include "support/processes.h"
#include "transport/rdma/survey/survey.h"
#include "transport/tcp/interfaces.h"
#include "transport/tcp/listener.h"

namespace mccl {
namespace {

using rendezvous::Exchange;
using rendezvous::Incarnation;
using testing::Processes;
using testing::run_failing_ranks;
using testing::test_config;
using transport::tcp::Address;
using transport::tcp::Listener;

/// Far below MCCL_CONNECT_TIMEOUT, and far above the time that a busy machine needs.
constexpr std::chrono::seconds kSoon{20};

Config quick(Config config = test_config()) {
  config.calibrate = false;
  if (config.job_key.empty()) config.job_key = "a key that needs no agreement";
  return config;
}

/// Publishes what rank `rank` of two publishes, and does nothing else.
void only_publish(Incarnation& start, const Config& config, const std::string& host,
                  const rendezvous::Endpoint& endpoint) {
  const Exchange exchange(start, rendezvous::secret_of_run(config.job_key, start.name()),
                          endpoint.rank, 2, Clock::now() + kSoon);
  exchange.all_gather("places", host + "\n- 0 -");
  exchange.all_gather("endpoints",
                      "-\n" + transport::rdma::serialise({}) + "\n" + serialise(endpoint));
}

void expect_says(const std::string& said, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    EXPECT_NE(said.find(word), std::string::npos) << "'" << said << "' lacks '" << word << "'";
  }
}

void expect_soon(const std::function<void()>& action) {
  const auto begin = std::chrono::steady_clock::now();
  action();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kSoon) << "only the timeout ended it";
}

TEST(Meeting, ABadPortOfOneRankIsNamedByAll) {
  expect_soon([] {
    const auto errors = run_failing_ranks(
        3, [](Context&) {},
        [](int rank) {
          Config config = quick();
          if (rank == 2) config.port_base = 65534;
          return config;
        });
    for (const std::string& error : errors)
      expect_says(error, {"rank 2 would listen on port 65536"});
  });
}

TEST(Meeting, AWrongSettingOfRank0IsNamedByAll) {
  expect_soon([] {
    const auto errors = run_failing_ranks(
        3, [](Context&) {},
        [](int rank) {
          Config config = quick();
          if (rank == 0) config.ifname = "no-such-interface";
          return config;
        });
    for (const std::string& error : errors) expect_says(error, {"no-such-interface"});
  });
}

TEST(Meeting, WorldSizesThatDifferAreNamedByAll) {
  expect_soon([] {
    const auto store = make_memory_store();
    std::vector<std::string> errors(3);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          Context::create({rank, rank == 1 ? 2 : 3, store, quick(), nullptr});
        } catch (const std::exception& error) {
          errors[static_cast<std::size_t>(rank)] = error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& error : errors) {
      expect_says(error, {"rank 1 was started in a job of 2 ranks, but rank 0 in a job of 3"});
    }
  });
}

/// The dying rank has reached the store and dies before it meets any other rank.
TEST(Meeting, ADeathAfterTheStoreIsNamedByAll) {
  for (const int dying : {1, 2}) {
    Processes job(3, [](Context&, const Processes::Say&) {},
                  {.store_address = {},
                   .config_of = [](int) { return quick(); },
                   .enter = {},
                   .at_the_store =
                       [=](int rank, Store& store) {
                         if (rank != dying) return;
                         while (store.add(rendezvous::kReigns, 0) == 0) std::this_thread::yield();
                         ::raise(SIGKILL);
                       }});
    for (const int rank : {0, 1, 2}) {
      if (rank == dying) continue;
      expect_says(job.line(rank, kSoon), {"rank " + std::to_string(dying) + " died"});
    }
  }
}

/// The store reports no deaths. The dead rank has published an address where nothing listens,
/// whether it is the one that dials or the one dialled.
TEST(Meeting, ARankWhoseAddressRefusesConnectionsIsDead) {
  for (const int dead : {0, 1}) {
    const auto store = make_memory_store();
    std::thread dying([&] {
      Incarnation start(store, {dead, 2, rendezvous::agreement_of_arrival(quick())}, kSoon);
      const std::string host = transport::tcp::host_identity();
      const auto port = Listener(*Address::parse_numeric("127.0.0.1", 0), 0).address().port();
      only_publish(start, quick(), host, {dead, host, port, {"127.0.0.1"}, false});
    });
    expect_soon([&] {
      try {
        Context::create({1 - dead, 2, store, quick(), nullptr});
        ADD_FAILURE() << "the rank connected to a dead rank";
      } catch (const std::exception& error) {
        expect_says(error.what(), {"rank " + std::to_string(dead)});
      }
    });
    dying.join();
  }
}

/// Rank 1 of an earlier run still dials the address of its rank 0, where a new run with the same
/// key has started.
TEST(Meeting, ARankOfAnEarlierRunIsRefused) {
  Config config = quick();
  config.job_key = "the same for both runs";
  const auto old_store = make_memory_store();
  const auto new_store = make_memory_store();
  const std::string here = transport::tcp::host_identity() + "-another";
  const int port = testing::free_port();
  const auto endpoint = [&](int rank) {
    return rendezvous::Endpoint{rank, here, static_cast<std::uint16_t>(port), {"127.0.0.1"}, true};
  };
  const auto metrics = std::make_shared<Metrics>();
  std::string error_of_new, error_of_old;
  std::thread new_rank_0([&] {
    Config next = config;
    next.port_base = port;
    next.listen_addr = "127.0.0.1";
    try {
      Context::create({0, 2, new_store, next, metrics});
    } catch (const std::exception& error) {
      error_of_new = error.what();
    }
  });
  Incarnation new_rank_1(new_store, {1, 2, rendezvous::agreement_of_arrival(config)}, kSoon);
  only_publish(new_rank_1, config, here, endpoint(1));
  std::thread old_rank_1([&] {
    Config last = config;
    last.connect_timeout = 2;
    try {
      Context::create({1, 2, old_store, last, nullptr});
    } catch (const std::exception& error) {
      error_of_old = error.what();
    }
  });
  Incarnation old_rank_0(old_store, {0, 2, rendezvous::agreement_of_arrival(config)}, kSoon);
  only_publish(old_rank_0, config, here, endpoint(0));
  const auto limit = std::chrono::steady_clock::now() + kSoon;
  while (metrics->summary().refused_connections == 0 && std::chrono::steady_clock::now() < limit) {
    std::this_thread::yield();
  }
  EXPECT_GT(metrics->summary().refused_connections, 0u)
      << "the rank of the earlier run was accepted";
  new_rank_1.fail(Error("the test is over"));
  new_rank_0.join();
  old_rank_1.join();
  expect_says(error_of_new, {"the test is over"});
  EXPECT_NE(error_of_old, "");
}

#ifdef __linux__
/// If `pinned`, both ranks may run only on the first core.
TEST(Meeting, PinnedRanksThatShareACoreKnowIt) {
  const std::string second_store = "127.0.0.1:" + std::to_string(testing::free_port());
  for (const bool pinned : {true, false}) {
    Processes job(2,
                  [&](Context& context, const Processes::Say& say) {
                    const int rank = context.rank();
                    const auto store = make_tcp_store(second_store, rank, "key", kSoon);
                    const auto engine = engine::Engine::create(
                        engine::EngineOptions{rank, 2, store, quick(), nullptr});
                    say(engine->ranks_per_core() == 2 ? "they share it" : "they do not");
                    context.world()->barrier().wait();
                  },
                  {.store_address = {},
                   .config_of = [](int) { return quick(); },
                   .enter =
                       [pinned](int) {
                         const std::vector<int> allowed = cores_of_this_process().allowed;
                         cpu_set_t first;
                         CPU_ZERO(&first);
                         CPU_SET(allowed.front(), &first);
                         if (pinned) ::sched_setaffinity(0, sizeof first, &first);
                       }});
    const bool alone = cores_of_this_process().allowed.size() == 1;
    for (const int rank : {0, 1}) {
      EXPECT_EQ(job.line(rank), pinned || alone ? "they share it" : "they do not");
    }
    job.expect_good_end();
  }
}
#endif

TEST(Meeting, AnExtraStartDoesNotSpoilTheNext) {
  const auto store = make_memory_store();
  for (int start = 0; start < 3; ++start) {
    std::vector<std::thread> threads;
    for (const int rank : {0, 1, 2}) {
      threads.emplace_back([&, rank] {
        const auto context = Context::create({rank, 3, store, quick(), nullptr});
        context->world()->barrier().wait();
      });
    }
    for (std::thread& thread : threads) thread.join();
    Config hasty = quick();
    hasty.connect_timeout = 0.05;
    EXPECT_THROW(Context::create({1, 3, store, hasty, nullptr}), TimeoutError);
  }
}

/// A store for a rank that is slow to read the last value. Calls `at_the_end` before that value is
/// read.
class SlowAtTheEnd final : public Store {
 public:
  SlowAtTheEnd(std::shared_ptr<Store> store, std::string end, std::function<void()> at_the_end)
      : store_(std::move(store)), end_(std::move(end)), at_the_end_(std::move(at_the_end)) {}
  void set(const std::string& key, std::string_view value) override { store_->set(key, value); }
  std::int64_t add(const std::string& key, std::int64_t n) override { return store_->add(key, n); }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    if (key.ends_with(end_)) std::exchange(at_the_end_, [] {})();
    return store_->get(key, timeout);
  }

 private:
  const std::shared_ptr<Store> store_;
  const std::string end_;  ///< Suffix of the key of the last value.
  std::function<void()> at_the_end_;
};

/// The program makes no call after it has joined the job. Rank 0 serves the store, so it must not
/// end before the other rank has read the last value.
TEST(Meeting, Rank0EndsAfterTheOthersHaveReadItsLastValues) {
  const Config config = quick();
  const auto store = make_memory_store();
  std::promise<void> ended;
  std::future<void> end = ended.get_future();
  bool ended_first = true;
  std::thread late([&] {
    const auto slow = std::make_shared<SlowAtTheEnd>(store, "/neighbours/all/0", [&] {
      // Much longer than rank 0 needs to end if it does not wait.
      ended_first = end.wait_for(std::chrono::milliseconds(300)) == std::future_status::ready;
    });
    Context::create({1, 2, slow, config, nullptr});
  });
  Context::create({0, 2, store, config, nullptr}).reset();
  ended.set_value();
  late.join();
  EXPECT_FALSE(ended_first);
}

/// A control connection and two descriptors of shared memory stay open for each pair. While ranks
/// connect, they may hold only a few other files.
TEST(Meeting, NeedsFewTemporaryDescriptors) {
  constexpr int kSize = 24;
  Processes job(
      kSize,
      [](Context& context, const Processes::Say& say) {
        say(context.costs().nodes == std::vector<int>(kSize, 0) ? "shared" : "not shared");
      },
      {.store_address = {},
       .config_of = [](int) { return quick(); },
       .enter =
           [](int rank) {
             const rlimit limit = {4 * kSize + 45, 4 * kSize + 45};
             if (rank > 0) ::setrlimit(RLIMIT_NOFILE, &limit);
           }});
  for (int rank = 0; rank < kSize; ++rank) EXPECT_EQ(job.line(rank), "shared");
}

TEST(Meeting, TooFewFilesAreAnErrorThatNamesTheLimitAndTheNeed) {
  Processes job(4, [](Context&, const Processes::Say&) {},
                {.store_address = {},
                 .config_of = [](int) { return quick(); },
                 .enter =
                     [](int rank) {
                       const rlimit limit = {20, 20};
                       if (rank == 2) ::setrlimit(RLIMIT_NOFILE, &limit);
                     }});
  for (const int rank : {0, 1, 2, 3}) {
    expect_says(job.line(rank, kSoon), {"rank 2 needs about", "its limit is 20", "ulimit -n"});
  }
}

/// A store that stops this process, which is rank 0 and serves the store, when ranks publish their
/// places.
class StoreThatStops final : public Store {
 public:
  explicit StoreThatStops(std::shared_ptr<Store> store) : store_(std::move(store)) {}
  void set(const std::string& key, std::string_view value) override { store_->set(key, value); }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    if (key.find("places") != key.npos) ::raise(SIGSTOP);
    return store_->get(key, timeout);
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    return store_->add(key, amount);
  }

 private:
  const std::shared_ptr<Store> store_;
};

/// A store to which another process has written: it returns `text` for the entry whose key ends
/// with `ending`.
class StoreThatLies final : public Store {
 public:
  StoreThatLies(std::shared_ptr<Store> store, std::string ending, std::string text)
      : store_(std::move(store)), ending_(std::move(ending)), text_(std::move(text)) {}
  void set(const std::string& key, std::string_view value) override { store_->set(key, value); }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    const std::string found = store_->get(key, timeout);
    return key.ends_with(ending_) ? text_ : found;
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    return store_->add(key, amount);
  }

 private:
  const std::shared_ptr<Store> store_;
  const std::string ending_;
  const std::string text_;
};

/// A false table of nodes, for example, would make some ranks leave out others.
TEST(Meeting, ARankUsesNothingThatAnotherProcessWroteToTheStore) {
  const std::pair<std::string, std::string> lies[] = {{"/places/1", "another-host\n- 0 -"},
                                                      {"/places/all/0", "1:6:x\n- 0 -6:x\n- 0 -"},
                                                      {"/endpoints/1", "-\n\n"},
                                                      {"/endpoints/all/0", "1:1:-1:-"},
                                                      {"/neighbours/1", ""},
                                                      {"/neighbours/all/0", "1:"},
                                                      {"/neighbours/all/0", "1:0 0"}};
  for (const auto& [key, text] : lies) {
    SCOPED_TRACE(key);
    const auto store = std::make_shared<StoreThatLies>(make_memory_store(), key, text);
    std::vector<std::string> errors(2);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      ranks.emplace_back([&, rank] {
        try {
          Context::create({rank, 2, store, quick(), nullptr});
        } catch (const std::exception& error) {
          errors[static_cast<std::size_t>(rank)] = error.what();
        }
      });
    }
    for (std::thread& rank : ranks) rank.join();
    EXPECT_NE(errors[1], "");  // reads the last table; rank 0 may learn of its failure later
    for (const std::string& error : errors) {
      if (!error.empty() || key != "/neighbours/all/0")
        expect_says(error, {"no valid proof of the job's key", "another process writes"});
    }
  }
}

TEST(Meeting, KeysThatDifferAreNamedOnEveryRank) {
  const auto errors = run_failing_ranks(
      2, [](Context&) {},
      [](int rank) {
        Config config = quick();
        config.job_key = "the key of rank " + std::to_string(rank);
        return config;
      });
  for (const std::string& error : errors)
    expect_says(error, {"rank 1 published", "different keys", "MCCL_JOB_KEY"});
}

TEST(Meeting, AStoppedStoreIsNamedWhenTheTimeToConnectIsOver) {
  Processes job(2, [](Context&, const Processes::Say&) {},
                {.store_address = {},
                 .config_of =
                     [](int) {
                       Config config = quick();
                       config.connect_timeout = 2;
                       return config;
                     },
                 .enter = {},
                 .at_the_store = {},
                 .store_for = [](int rank, std::shared_ptr<Store> store) -> std::shared_ptr<Store> {
                   if (rank != 0) return store;
                   return std::make_shared<StoreThatStops>(std::move(store));
                 }});
  expect_says(job.line(1, kSoon),
              {"rank 1 lost its connection to the store of rank 0", "is stopped"});
}

/// A store that stops this process from opening files once the ranks have published their
/// addresses.
class StoreThatEndsFiles final : public Store {
 public:
  explicit StoreThatEndsFiles(std::shared_ptr<Store> store) : store_(std::move(store)) {}
  void set(const std::string& key, std::string_view value) override {
    look_at(key);
    store_->set(key, value);
  }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    look_at(key);
    return store_->get(key, timeout);
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    return store_->add(key, amount);
  }

 private:
  static void look_at(const std::string& key) {
    if (key.find("endpoints") == key.npos) return;
    const int next = ::dup(0);
    if (next < 0) return;
    ::close(next);
    const rlimit limit = {static_cast<rlim_t>(next), static_cast<rlim_t>(next)};
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }

  const std::shared_ptr<Store> store_;
};

TEST(Meeting, ARankThatRunsOutOfFilesIsNamedByAll) {
  for (const int limited : {0, 1}) {
    Processes job(
        2, [](Context&, const Processes::Say&) {},
        {.store_address = {},
         .config_of =
             [](int) {
               Config config = quick();
               config.transport = "tcp";
               return config;
             },
         .enter = {},
         .at_the_store = {},
         .store_for = [limited](int rank, std::shared_ptr<Store> store) -> std::shared_ptr<Store> {
           if (rank != limited) return store;
           return std::make_shared<StoreThatEndsFiles>(std::move(store));
         }});
    for (const int rank : {0, 1}) {
      expect_says(job.line(rank, kSoon), {"rank " + std::to_string(limited) +
                                              " has no file descriptors left: too many open files",
                                          "ulimit -n"});
    }
  }
}

TEST(Meeting, TheSoftLimitOfFilesIsRaised) {
  Processes job(4, [](Context&, const Processes::Say&) {},
                {.store_address = {},
                 .config_of = [](int) { return quick(); },
                 .enter =
                     [](int) {
                       rlimit limit = {};
                       ::getrlimit(RLIMIT_NOFILE, &limit);
                       limit.rlim_cur = 20;
                       ::setrlimit(RLIMIT_NOFILE, &limit);
                     }});
  job.expect_good_end();
}

}  // namespace
}  // namespace mccl
