// Tests a rank that dies or fails at one point of the meeting. The others must soon report which
// rank it was.
#include "rendezvous/meeting/meeting.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <utility>

#include "rendezvous/store/tcp_store.h"
#include "support/processes.h"

namespace mccl::rendezvous {
namespace {

using mccl::testing::Processes;
using mccl::testing::test_config;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kSize = 3;
/// Far below the minute that the ranks have to meet, and far above the time that a busy machine
/// needs.
constexpr std::chrono::seconds kSoon{20};

/// A store that a rank uses until it accesses one given key.
class StoreUpTo final : public Store {
 public:
  /// Simulates death: the rank sends nothing more, and the system closes its descriptors.
  struct Dies : Error {
    Dies() : Error("it died") {}
  };

  /// Calls `end` at the first access of a key that ends in `last`.
  StoreUpTo(std::shared_ptr<Store> store, std::string last, std::function<void()> end)
      : store_(std::move(store)), last_(std::move(last)), end_(std::move(end)) {}

  void set(const std::string& key, std::string_view value) override {
    look_at(key);
    store_->set(key, value);
  }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    look_at(key);
    return store_->get(key, timeout);
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    look_at(key);
    return store_->add(key, amount);
  }

 private:
  void look_at(const std::string& key) {
    if (dead_) throw Error("a dead rank used the store");
    if (last_.empty() || !key.ends_with(last_)) return;
    last_.clear();
    try {
      end_();
    } catch (const Dies&) {
      dead_ = true;
      throw;
    }
  }

  const std::shared_ptr<Store> store_;
  std::string last_;
  const std::function<void()> end_;
  bool dead_ = false;
};

/// The point of the meeting at which a rank ends: its access to a key of the store.
struct Point {
  const char* name;
  int rank;
  const char* key;  ///< Last characters of the store's key.
};

void PrintTo(const Point& point, std::ostream* stream) { *stream << point.name; }

/// Points at which not all ranks listen yet.
const Point kBeforeAllListen[] = {
    {"Rank0CollectsPlaces", 0, "/places/2"},
    {"Rank0HasThePlaces", 0, "/places/all/0"},
    {"Rank1SaysItsPlace", 1, "/places/1"},
    {"Rank1ReadsThePlaces", 1, "/places/all/0"},
    {"Rank0HasTheEndpoints", 0, "/endpoints/all/0"},
    {"Rank1ListensAndHasNotSaidSo", 1, "/endpoints/1"},
};
const Point kWhenAllListen[] = {
    {"Rank1ReadsTheEndpoints", 1, "/endpoints/all/0"},
    {"Rank2ReadsTheEndpoints", 2, "/endpoints/all/0"},
    {"Rank0CollectsNeighbours", 0, "/neighbours/1"},
    {"Rank0HasTheNeighbours", 0, "/neighbours/all/0"},
    {"Rank1SaysItsNeighbours", 1, "/neighbours/1"},
};

Config config_for(const char* transport) {
  Config config = test_config();
  config.calibrate = false;
  config.transport = transport;
  config.job_key = "a key that needs no agreement";
  return config;
}

/// Returns the error of each rank's meeting, or "" if it met the others.
std::vector<std::string> meet_all(const Point& point, const char* transport,
                                  const std::function<void()>& end) {
  const std::shared_ptr<Store> store = make_memory_store();
  std::vector<std::string> errors(kSize);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kSize; ++rank) {
    threads.emplace_back([&, rank] {
      int bell[2];
      ASSERT_EQ(::pipe(bell), 0);
      try {
        meet({.rank = rank,
              .size = kSize,
              .store =
                  rank == point.rank ? std::make_shared<StoreUpTo>(store, point.key, end) : store,
              .config = config_for(transport),
              .log = Log(rank, LogLevel::off),
              .on_refused = {},
              .bell_pipe = bell[1],
              .agree_on_key = [](const auto&, auto) { return std::string("the key"); }});
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
      ::close(bell[0]);
      ::close(bell[1]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

void expect_soon(const std::function<void()>& action) {
  const auto begin = std::chrono::steady_clock::now();
  action();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kSoon) << "only the timeout ended it";
}

std::string name_of(const ::testing::TestParamInfo<Point>& info) { return info.param.name; }

class ARankThatFails : public ::testing::TestWithParam<Point> {};

TEST_P(ARankThatFails, IsNamedByAllWithItsReason) {
  expect_soon([] {
    const auto errors =
        meet_all(GetParam(), "auto", [] { throw Error("the disk of its host is full"); });
    for (int rank = 0; rank < kSize; ++rank) {
      const std::string& error = errors[static_cast<std::size_t>(rank)];
      EXPECT_THAT(error, HasSubstr("the disk of its host is full")) << rank;
      if (rank == GetParam().rank) continue;
      EXPECT_THAT(error, HasSubstr("rank " + std::to_string(GetParam().rank) + " cannot")) << rank;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(BeforeAllListen, ARankThatFails, ::testing::ValuesIn(kBeforeAllListen),
                         name_of);
INSTANTIATE_TEST_SUITE_P(WhenAllListen, ARankThatFails, ::testing::ValuesIn(kWhenAllListen),
                         name_of);

class ADeath : public ::testing::TestWithParam<Point> {};
class ADeathOfARankThatListened : public ::testing::TestWithParam<Point> {};

/// The store behaves like torch's: it outlives rank 0 and does not know its clients.
TEST_P(ADeathOfARankThatListened, IsNoticedWithoutTheStore) {
  const Point point = GetParam();
  for (const char* transport : {"auto", "tcp"}) {
    SCOPED_TRACE(transport);
    expect_soon([&] {
      const auto errors = meet_all(point, transport, [] { throw StoreUpTo::Dies(); });
      for (int rank = 0; rank < kSize; ++rank) {
        if (rank == point.rank) continue;
        EXPECT_THAT(
            errors[static_cast<std::size_t>(rank)],
            AllOf(HasSubstr("rank " + std::to_string(point.rank)), Not(HasSubstr("waited"))))
            << rank;
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(WhenAllListen, ADeathOfARankThatListened,
                         ::testing::ValuesIn(kWhenAllListen), name_of);

/// Rank 0 serves the store.
TEST_P(ADeath, IsNamedByAll) {
  const Point point = GetParam();
  const auto meet_up_to_the_point = [point](int rank, Store& store) {
    if (rank != point.rank) return;
    const std::shared_ptr<Store> borrowed(std::shared_ptr<void>(), &store);
    Context::create({rank, kSize,
                     std::make_shared<StoreUpTo>(borrowed, point.key, [] { ::raise(SIGKILL); }),
                     config_for("auto"), nullptr});
  };
  Processes job(kSize, [](Context&, const Processes::Say&) {},
                {.store_address = {},
                 .config_of = [](int) { return config_for("auto"); },
                 .enter = {},
                 .at_the_store = meet_up_to_the_point});
  for (int rank = 0; rank < kSize; ++rank) {
    if (rank == point.rank) continue;
    EXPECT_THAT(job.line(rank, kSoon),
                AllOf(HasSubstr("rank " + std::to_string(point.rank)), Not(HasSubstr("waited"))))
        << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(BeforeAllListen, ADeath, ::testing::ValuesIn(kBeforeAllListen), name_of);
INSTANTIATE_TEST_SUITE_P(WhenAllListen, ADeath, ::testing::ValuesIn(kWhenAllListen), name_of);

/// Records the deadline of each request.
class StoreThatNotesItsLimit final : public RemoteAnswers {
 public:
  explicit StoreThatNotesItsLimit(std::shared_ptr<Store> store) : store_(std::move(store)) {}
  void set(const std::string& key, std::string_view value) override {
    note();
    store_->set(key, value);
  }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    note();
    return store_->get(key, timeout);
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    note();
    return store_->add(key, amount);
  }

  Clock::duration longest_wait() const { return longest_wait_; }

 private:
  /// The limit is fixed while the ranks meet, so the first request has the most time left.
  void note() { longest_wait_ = std::max(longest_wait_, answer_limit() - Clock::now()); }

  const std::shared_ptr<Store> store_;
  Clock::duration longest_wait_{};
};

TEST(Meeting, GivesUpOnAnUnresponsiveStoreAtTheConnectTimeout) {
  for (const double seconds : {60.0, 2.0}) {
    const std::shared_ptr<Store> table = make_memory_store();
    std::vector<std::shared_ptr<StoreThatNotesItsLimit>> stores;
    std::vector<std::thread> threads;
    for (const int rank : {0, 1}) {
      stores.push_back(std::make_shared<StoreThatNotesItsLimit>(table));
      threads.emplace_back([rank, seconds, store = stores.back()] {
        Config config = config_for("tcp");
        config.connect_timeout = seconds;
        try {
          meet({.rank = rank,
                .size = 2,
                .store = store,
                .config = config,
                .log = Log(rank, LogLevel::off),
                .on_refused = {},
                .agree_on_key = [](const auto&, auto) { return std::string("the key"); }});
        } catch (const std::exception& error) {
          ADD_FAILURE() << error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& store : stores) {
      EXPECT_GT(store->longest_wait(), Clock::duration());
      EXPECT_LE(store->longest_wait(), std::chrono::duration<double>(seconds));
    }
  }
}

/// Rank 0 served the store of the previous start. Rank 1 keeps its client of that store.
TEST(RestartedJob, WaitsForItsRank0AfterThePreviousStoreEnded) {
  const std::string address = "127.0.0.1:" + std::to_string(mccl::testing::free_port());
  std::shared_ptr<Store> served = make_tcp_store(address, 0, "key", kSoon);
  const std::shared_ptr<Store> reached = make_tcp_store(address, 1, "key", kSoon);
  for (int start = 0; start < 2; ++start) {
    std::string heard;
    std::jthread rank_1([&] {
      try {
        heard = Incarnation(reached, {1, 2, ""}, kSoon).name();
      } catch (const std::exception& error) {
        heard = error.what();
      }
    });
    if (!served) served = make_tcp_store(address, 0, "key", kSoon);
    const std::string name = Incarnation(served, {0, 2, ""}, kSoon).name();
    rank_1.join();
    EXPECT_EQ(heard, name);
    served.reset();
  }
}

}  // namespace
}  // namespace mccl::rendezvous
