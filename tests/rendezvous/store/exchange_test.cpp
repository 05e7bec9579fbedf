#include "rendezvous/store/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "mccl/error.h"
#include "rendezvous/store/memory_store.h"

namespace mccl::rendezvous {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr std::chrono::seconds kMinute{60};
const SecretBytes kKey("the key of this run");

TEST(RollCall, NamesMissingAndPresentRanks) {
  EXPECT_EQ(roll_call({true, false, true, false}), "ranks 1 and 3 have not arrived; 0 and 2 have");
  EXPECT_EQ(roll_call({true, false}), "rank 1 has not arrived; 0 has");
  EXPECT_EQ(roll_call({false, false, true}), "ranks 0 and 1 have not arrived; 2 has");
  EXPECT_EQ(roll_call({false, false}), "ranks 0 and 1 have not arrived");
  EXPECT_EQ(roll_call({false, true}, "connected"), "rank 0 has not connected; 1 has");
}

TEST(RollCall, ShortensLongRunsOfRanks) {
  std::vector<bool> present(1000, true);
  for (const int absent : {3, 7, 8, 20, 21, 22, 999}) present[absent] = false;
  EXPECT_EQ(roll_call(present),
            "ranks 3, 7, 8, 20 to 22 and 999 have not arrived; 0 to 2, 4 to 6, 9 to 19 and 23 to "
            "998 have");
}

TEST(Exchange, ARankThatTimesOutBeforeRank0NamesMissingRanks) {
  const auto store = make_memory_store();
  const Clock::time_point over = Clock::now();
  try {
    Exchange(*store, kKey, 2, 4, over).all_gather("places", "here");
    FAIL() << "rank 0 has not reported the missing ranks";
  } catch (const TimeoutError& error) {
    EXPECT_THAT(error.what(), HasSubstr("ranks 1 and 3 have not arrived; 0 and 2 have"));
  }
}

/// A store that counts requests.
class CountingStore final : public Store {
 public:
  void set(const std::string& key, std::string_view value) override {
    ++requests;
    store_.set(key, value);
  }
  std::int64_t add(const std::string& key, std::int64_t n) override {
    ++requests;
    return store_.add(key, n);
  }
  std::string get(const std::string& key, milliseconds timeout) override {
    ++requests;
    return store_.get(key, timeout);
  }
  std::atomic<int> requests{0};

 private:
  MemoryStore store_;
};

/// Only rank 0 may make as many requests as there are ranks.
TEST(Exchange, NeedsFewRequestsPerRank) {
  const auto store = std::make_shared<CountingStore>();
  constexpr int kSize = 24;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kSize; ++rank) {
    ranks.emplace_back([&, rank] {
      const Exchange exchange(*store, kKey, rank, kSize, Clock::now() + kMinute);
      for (const char* stage : {"a", "b", "c"}) {
        const std::string card(static_cast<std::size_t>(rank), 'x');
        const auto cards = exchange.all_gather(stage, card);
        ASSERT_EQ(cards.size(), static_cast<std::size_t>(kSize));
        for (std::size_t i = 0; i < cards.size(); ++i) EXPECT_EQ(cards[i].size(), i);
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_LE(store->requests, 3 * 3 * kSize);
}

TEST(Exchange, SplitsTablesThatExceedTheLimitOfTheStore) {
  const auto store = make_memory_store();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.emplace_back([&, rank] {
      const Exchange exchange(*store, kKey, rank, 4, Clock::now() + kMinute);
      const auto cards =
          exchange.all_gather("a", std::string(900'000, static_cast<char>('a' + rank)));
      for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(cards[static_cast<std::size_t>(i)],
                  std::string(900'000, static_cast<char>('a' + i)));
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

/// Returns values that another process can write to the store: texts without a proof, proofs of
/// another key, and proofs of another entry.
std::vector<std::string> forgeries(const std::string& name, const std::string& text) {
  std::string altered = with_proof(kKey, name, text);
  altered[0] ^= 1;
  return {"",
          text,
          std::string(200, 'x'),
          altered,
          with_proof(kKey, name, text) + "0",
          with_proof(SecretBytes("another key"), name, text),
          with_proof({}, name, text),
          with_proof(kKey, "another/entry", text)};
}

TEST(Exchange, RefusesEntriesWithoutAProofOfTheKey) {
  struct Entry {
    int reader;
    const char* name;
    const char* text;
  };
  for (const Entry& entry : {Entry{0, "a/1", "1"}, Entry{1, "a/all/0", "1:1:01:1"}}) {
    const auto read = [&](const std::string& value) {
      const auto store = make_memory_store();
      store->set(entry.name, value);
      const Exchange exchange(*store, kKey, entry.reader, 2, Clock::now() + kMinute);
      return exchange.all_gather("a", std::to_string(entry.reader));
    };
    EXPECT_EQ(read(with_proof(kKey, entry.name, entry.text)), (std::vector<std::string>{"0", "1"}));
    for (const std::string& forged : forgeries(entry.name, entry.text))
      EXPECT_THROW(read(forged), CorruptionError) << entry.name << ": " << forged;
  }
}

}  // namespace
}  // namespace mccl::rendezvous
