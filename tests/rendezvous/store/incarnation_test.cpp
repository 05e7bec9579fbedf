#include "rendezvous/store/incarnation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <future>
#include <map>
#include <thread>

#include "rendezvous/store/exchange.h"
#include "rendezvous/store/memory_store.h"
#include "support/processes.h"

namespace mccl::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr seconds kLong{60};

/// Processes that connect to a store, each simulated by a thread, and what each returns.
class Processes {
 public:
  explicit Processes(std::shared_ptr<Store> store = make_memory_store())
      : store_(std::move(store)) {}
  ~Processes() { join(); }

  using Body = std::function<std::string(Incarnation&)>;
  /// Starts a process that yields its body's result or its error.
  void start(int place, JoinRequest self, const Body& body = {}) {
    threads_.emplace(place, [this, place, self, body] {
      std::string said;
      try {
        Incarnation start(store_, self, kLong);
        try {
          said = body ? body(start) : start.name();
        } catch (const std::exception& error) {
          start.fail(error);
          throw;
        }
      } catch (const std::exception& error) {
        said = error.what();
      }
      const std::lock_guard lock(mutex_);
      said_[place] = said;
    });
  }
  void join_one(int place) { threads_.at(place).join(); }
  void join() {
    for (auto& [place, thread] : threads_) {
      if (thread.joinable()) thread.join();
    }
  }
  std::string operator[](int place) {
    const std::lock_guard lock(mutex_);
    return said_[place];
  }
  Store& store() { return *store_; }

 private:
  const std::shared_ptr<Store> store_;
  std::mutex mutex_;
  std::map<int, std::string> said_;
  std::map<int, std::thread> threads_;
};

/// Gathers a card from every rank and returns them joined.
std::string meet(Incarnation& start, int rank, int size) {
  const Exchange exchange(start, {}, rank, size, Clock::now() + kLong);
  std::string all;
  for (const std::string& card : exchange.all_gather("test", std::to_string(rank))) all += card;
  return all;
}

Processes::Body meets(int rank, int size) {
  return [=](Incarnation& start) { return meet(start, rank, size); };
}

TEST(Incarnation, IsTheSameOnAllRanks) {
  Processes ranks;
  for (const int rank : {0, 1, 2, 3}) ranks.start(rank, {rank, 4, "a=1\n"});
  ranks.join();
  EXPECT_EQ(ranks[0].size(), 32u);
  for (const int rank : {1, 2, 3}) EXPECT_EQ(ranks[rank], ranks[0]);
}

TEST(Incarnation, SeparatesStartsOnOneStore) {
  const auto store = make_memory_store();
  std::string first;
  for (int i = 0; i < 3; ++i) {
    Processes ranks(store);
    for (const int rank : {0, 1, 2}) ranks.start(rank, {rank, 3, ""}, meets(rank, 3));
    ranks.join();
    for (const int rank : {0, 1, 2}) EXPECT_EQ(ranks[rank], "012");
  }
}

/// A generation computed as the number of starts divided by the number of ranks would fail here:
/// after one extra start, the ranks would have different generations.
TEST(Incarnation, ADeadExtraProcessTakesNoRank) {
  const auto store = make_memory_store();
  for (int extra = 0; extra < 3; ++extra) {
    EXPECT_THROW(Incarnation(store, {1, 2, ""}, milliseconds(20)), TimeoutError);
    if (extra == 1) store->add("mccl/arrivals", 1);  // died before it published its rank
    Processes ranks(store);
    for (const int rank : {1, 0}) ranks.start(rank, {rank, 2, ""}, meets(rank, 2));
    ranks.join();
    for (const int rank : {0, 1}) EXPECT_EQ(ranks[rank], "01");
  }
}

TEST(Incarnation, ASecondProcessOfARankIsRefusedWithBothNamed) {
  Processes ranks;
  std::promise<std::string> second;
  ranks.start(0, {0, 3, ""}, meets(0, 3));
  ranks.start(
      1,
      {.rank = 1, .size = 3, .on_second = [&](const std::string& who) { second.set_value(who); }},
      meets(1, 3));
  // Wait until the first process has published its identity as rank 1, which it does after it is
  // welcomed.
  const std::string welcome = ranks.store().get("mccl/welcome/1", kLong);
  const std::string name = welcome.substr(0, welcome.find('\n'));
  ranks.store().get("mccl/" + name + "/who/1", kLong);
  ranks.start(11, {1, 3, ""}, meets(1, 3));
  ranks.join_one(11);
  const std::string process = "process " + std::to_string(::getpid()) + " on ";
  EXPECT_EQ(ranks[0], "") << "the other ranks must still wait";
  EXPECT_THAT(second.get_future().get(), HasSubstr(process)) << "the first process reports it too";
  ranks.start(2, {2, 3, ""}, meets(2, 3));
  ranks.join();
  const std::string told = ranks[11].size() > ranks[1].size() ? ranks[11] : ranks[1];
  EXPECT_THAT(told, HasSubstr("rank 1 exists already: it is " + process));
  EXPECT_THAT(told, HasSubstr("this is " + process));
}

/// Only the first of two processes that are rank 0 is in the way: the second may be a new start.
TEST(Incarnation, ASecondRank0LearnsOfTheFirst) {
  Processes ranks;
  std::promise<std::string> first;
  ranks.start(0, {0, 2, ""}, meets(0, 2));
  while (ranks.store().add(kReigns, 0) == 0) std::this_thread::yield();
  ranks.start(
      10,
      {.rank = 0, .size = 2, .on_second = [&](const std::string& who) { first.set_value(who); }},
      meets(0, 2));
  std::future<std::string> told = first.get_future();
  ASSERT_EQ(told.wait_for(kLong), std::future_status::ready);
  EXPECT_THAT(told.get(), HasSubstr("process " + std::to_string(::getpid())));
  ranks.join_one(0);
  EXPECT_THAT(ranks[0], HasSubstr("another process joined as rank 0"));
  ranks.start(1, {1, 2, ""}, meets(1, 2));
  ranks.join();
  EXPECT_EQ(ranks[10], "01");
}

TEST(Incarnation, ARunThatIsClosedContinuesBesideAnotherRank0) {
  Processes ranks;
  for (const int rank : {0, 1}) {
    ranks.start(rank, {rank, 2, ""}, [rank, &ranks](Incarnation& start) {
      const std::string met = meets(rank, 2)(start);
      start.close();
      if (rank == 0) {
        ranks.store().add(kReigns, 1);
        start.set("another came", "yes");
      }
      start.get("another came", kLong);
      start.look();
      return met;
    });
  }
  ranks.join();
  for (const int rank : {0, 1}) EXPECT_EQ(ranks[rank], "01");
}

/// The refused process may be the missing rank, started with a wrong number. So ranks that wait for
/// the missing one mention the refused process in their error.
TEST(Incarnation, WaitingRanksLearnOfRefusedProcesses) {
  Processes ranks;
  const auto tells_where = [](int rank, milliseconds patience) {
    return [=](Incarnation& start) -> std::string {
      const Exchange exchange(start, {}, rank, 3, Clock::now() + patience);
      return exchange.all_gather("places", "here").front();
    };
  };
  ranks.start(1, {1, 3, ""}, tells_where(1, kLong));
  ranks.start(11, {1, 3, ""}, tells_where(1, kLong));
  ranks.start(0, {0, 3, ""}, [&](Incarnation& start) {
    start.get(kCameTwice, kLong);
    return tells_where(0, milliseconds(100))(start);
  });
  ranks.join();
  for (const int place : {0, 1, 11}) {
    if (ranks[place].find("exists already") != std::string::npos) continue;
    EXPECT_THAT(ranks[place],
                AllOf(HasSubstr("rank 2 has not published them"),
                      HasSubstr("process " + std::to_string(::getpid())),
                      HasSubstr("also joined as rank 1: was it meant to be another")));
  }
}

/// Another process raises the counter of arrivals, so that rank 0 never comes to the next rank's.
TEST(Incarnation, ARaisedCounterOfArrivalsDoesNotDelayTheTimeout) {
  constexpr milliseconds kShort{300};
  const auto store = make_memory_store();
  store->add("mccl/arrivals", std::int64_t{1} << 40);
  std::thread rank_1([&] { EXPECT_THROW(Incarnation(store, {1, 2, ""}, kShort), TimeoutError); });
  const auto reign = [&] {
    Incarnation start(store, {0, 2, ""}, kShort);
    Exchange(start, {}, 0, 2, Clock::now() + kShort).all_gather("test", "");
  };
  EXPECT_THROW(reign(), TimeoutError);
  rank_1.join();
}

TEST(Incarnation, EveryRankNamesARankBeyondTheWorldSize) {
  Processes ranks;
  for (const int rank : {0, 1}) ranks.start(rank, {rank, 3, ""}, meets(rank, 3));
  ranks.start(3, {3, 4, ""}, meets(3, 4));
  ranks.join();
  for (const int rank : {0, 1, 3}) {
    EXPECT_THAT(ranks[rank],
                HasSubstr("rank 3 was started in a job of 4 ranks, but rank 0 in a job of 3"));
  }
}

/// The late process may belong to the next start, so it waits until its timeout.
TEST(Incarnation, AProcessThatArrivesAfterTheMeetingTimesOutAndNamesTheJob) {
  const auto store = make_memory_store();
  Processes ranks(store);
  for (const int rank : {0, 1}) {
    ranks.start(rank, {rank, 2, ""}, [](Incarnation& start) {
      start.close();
      return start.name();
    });
  }
  ranks.join();
  try {
    Incarnation(store, {2, 3, ""}, milliseconds(20));
    FAIL() << "the late process joined";
  } catch (const TimeoutError& error) {
    EXPECT_THAT(error.what(), HasSubstr("2 ranks connected through this store"));
    EXPECT_THAT(error.what(), HasSubstr("process " + std::to_string(::getpid())));
  }
}

TEST(Incarnation, WorldSizesThatDifferAreNamedOnEveryRank) {
  Processes ranks;
  ranks.start(0, {0, 3, ""}, meets(0, 3));
  ranks.start(1, {1, 2, ""}, meets(1, 2));
  ranks.start(2, {2, 3, ""}, meets(2, 3));
  ranks.join();
  for (const int rank : {0, 1, 2}) {
    EXPECT_THAT(ranks[rank],
                HasSubstr("rank 1 was started in a job of 2 ranks, but rank 0 in a job of 3"));
  }
}

TEST(Incarnation, SettingsThatDifferAreNamedOnEveryRank) {
  Processes ranks;
  for (const int rank : {0, 1, 2}) {
    ranks.start(rank, {rank, 3, rank == 2 ? "a=2\n" : "a=1\n"}, meets(rank, 3));
  }
  ranks.join();
  for (const int rank : {0, 1, 2}) {
    EXPECT_THAT(ranks[rank], HasSubstr("a (rank 0 has 1, rank 2 has 2)"));
  }
}

TEST(Incarnation, ARankThatFailsEndsEveryWaitWithItsReason) {
  for (const int failing : {0, 1, 2}) {
    Processes ranks;
    for (const int rank : {0, 1, 2}) {
      ranks.start(rank, {rank, 3, ""}, [=](Incarnation& start) -> std::string {
        if (rank == failing) throw PeerError("the disk is full");
        return start.get("what nobody sets", kLong);
      });
    }
    ranks.join();
    for (const int rank : {0, 1, 2}) {
      EXPECT_THAT(ranks[rank], HasSubstr("the disk is full"));
      if (rank == failing) continue;
      EXPECT_THAT(ranks[rank], HasSubstr("rank " + std::to_string(rank) + " cannot join"));
      EXPECT_THAT(ranks[rank], HasSubstr("rank " + std::to_string(failing) + " cannot"));
    }
  }
}

TEST(Incarnation, ADeathThatTheStoreCountsEndsEveryWait) {
  Processes ranks;
  for (const int rank : {0, 1}) {
    ranks.start(rank, {rank, 3, ""}, [](Incarnation& start) { return start.get("never", kLong); });
  }
  ranks.start(2, {2, 3, ""});
  ranks.join_one(2);
  ranks.store().set("mccl/death/1", "2");
  ranks.store().add("mccl/deaths", 1);
  ranks.join();
  for (const int rank : {0, 1}) EXPECT_THAT(ranks[rank], HasSubstr("rank 2 died"));
}

/// A rank may leave as soon as it has everything, before the others have read its values.
TEST(Incarnation, ReadsExistingValuesAfterAPeerHasLeft) {
  Processes ranks(make_memory_store());
  const auto body = [](Incarnation& start) {
    int looks = 0;
    start.watch_with([&]() {
      if (looks++ == 0) start.set("key", "value");
      throw PeerError("rank 1 has left");
    });
    return start.get("key", kLong);
  };
  ranks.start(0, {0, 1, ""}, body);
  ranks.join();
  EXPECT_EQ(ranks[0], "value");
}

std::string timeout_of(const std::shared_ptr<Store>& store, JoinRequest self) {
  try {
    Incarnation(store, std::move(self), milliseconds(300));
  } catch (const TimeoutError& error) {
    return error.what();
  }
  return "no timeout";
}

/// Like torch's store, this one does not track ranks.
TEST(Incarnation, NamesMissingRanks) {
  const auto store = make_memory_store();
  Processes others(store);
  others.start(2, {2, 4, ""}, meets(2, 4));
  const std::string said = timeout_of(store, {0, 4, ""});
  EXPECT_THAT(said, HasSubstr("ranks 1 and 3 have not arrived; 0 and 2 have"));
  EXPECT_THAT(said, HasSubstr("MCCL_CONNECT_TIMEOUT"));
  others.join();
  EXPECT_THAT(others[2], HasSubstr("ranks 1 and 3 have not arrived; 0 and 2 have"));
}

TEST(Incarnation, NamesMissingRanksThroughTheStoreOfRank0) {
  const std::string address = "127.0.0.1:" + std::to_string(mccl::testing::free_port());
  const auto store = make_tcp_store(address, 0, "key", kLong);
  Processes others(make_tcp_store(address, 2, "key", kLong));
  others.start(2, {2, 4, ""}, meets(2, 4));
  EXPECT_THAT(timeout_of(store, {0, 4, ""}),
              HasSubstr("ranks 1 and 3 have not arrived; 0 and 2 have"));
  others.join();
  EXPECT_THAT(others[2], HasSubstr("ranks 1 and 3 have not arrived; 0 and 2 have"));
}

TEST(Incarnation, NamesMissingRanksWithoutRank0) {
  const auto store = make_memory_store();
  // These keys belong to another start, whose ranks have met.
  store->set("mccl/arrival/1", "3");
  store->add("mccl/arrivals", 1);
  store->add("mccl/answered", 1);
  store->set("mccl/arrival/2", "1");
  store->add("mccl/arrivals", 1);
  const std::string said = timeout_of(store, {2, 4, ""});
  EXPECT_THAT(said, HasSubstr("ranks 0 and 3 have not arrived; 1 and 2 have"));
  EXPECT_THAT(said, HasSubstr("is rank 0 running"));
}

}  // namespace
}  // namespace mccl::rendezvous
