#include "rendezvous/neighbours.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <set>
#include <thread>

#include "mccl/error.h"
#include "rendezvous/memory_store.h"
#include "rendezvous/proof.h"
#include "transport/shm/local_socket.h"
#include "transport/shm_process.h"

namespace mccl::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using transport::shm::Descriptor;
using transport::shm::LocalConnection;
using transport::shm::LocalListener;
using transport::shm::Process;

constexpr const char* kKey = "the job's key";
constexpr std::string_view kProofLabel = "mccl neighbour";

Clock::time_point in(milliseconds time) { return Clock::now() + time; }

/// What goes over the local sockets.
struct Introduction {
  std::uint64_t magic = 0x6d63636c2d6e6272ULL;
  std::int32_t rank = -1;
  std::int32_t to = -1;
  Proof proof = {};
};

Introduction introduction(int rank, int to, const std::string& name, const std::string& to_name,
                          const char* key = kKey) {
  const std::string said =
      std::to_string(rank) + " " + std::to_string(to) + " " + name + " " + to_name;
  Introduction made;
  made.rank = rank;
  made.to = to;
  made.proof = prove(key, kProofLabel, std::as_bytes(std::span(said)));
  return made;
}

template <typename T>
void send(const LocalConnection& connection, const T& what, std::vector<int> passed = {}) {
  connection.send(std::as_bytes(std::span(&what, 1)), passed);
}

/// A store that does something once, before a rank gets an answer.
class Ambush final : public Store {
 public:
  Ambush(std::string key, std::function<void(Store&)> strike)
      : key_(std::move(key)), strike_(std::move(strike)) {}

  void set(const std::string& key, std::string_view value) override { store_.set(key, value); }
  std::int64_t add(const std::string& key, std::int64_t n) override { return store_.add(key, n); }
  std::string get(const std::string& key, milliseconds timeout) override {
    std::string value = store_.get(key, timeout);
    if (key == key_ && !struck_.exchange(true)) strike_(store_);
    return value;
  }

 private:
  MemoryStore store_;
  const std::string key_;
  const std::function<void(Store&)> strike_;
  std::atomic<bool> struck_{false};
};

NeighbourOptions options_of(int rank, int size, const std::shared_ptr<Store>& store,
                            Process* process) {
  NeighbourOptions options;
  options.rank = rank;
  options.size = size;
  options.store = store;
  options.job_key = kKey;
  options.deadline = in(seconds(60));
  if (process != nullptr) {
    options.arena = &process->arena();
    options.bell_pipe = process->bell_socket();
  }
  return options;
}

/// All ranks of a job, threads of this process.
struct Job {
  explicit Job(int size) : processes(static_cast<std::size_t>(size)), found(processes.size()) {}

  void meet(const std::shared_ptr<Store>& store, const std::set<int>& without_memory = {}) {
    std::vector<std::thread> threads;
    const int size = static_cast<int>(processes.size());
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        Process* process = without_memory.count(rank) != 0 ? nullptr : &processes[rank];
        try {
          found[rank] = meet_neighbours(options_of(rank, size, store, process));
        } catch (const std::exception& error) {
          ADD_FAILURE() << "rank " << rank << ": " << error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  std::vector<int> neighbours_of(int rank) const {
    std::vector<int> ranks;
    for (const auto& [peer, neighbour] : found[rank].neighbours) ranks.push_back(peer);
    return ranks;
  }

  /// Everybody with everybody, and it is the memory and the bell of the rank that it says.
  void expect_all_met() {
    for (std::size_t rank = 0; rank < found.size(); ++rank) {
      EXPECT_EQ(found[rank].nodes, std::vector<int>(found.size(), 0));
      EXPECT_EQ(found[rank].neighbours.size(), found.size() - 1);
      const transport::shm::Range range =
          processes[rank].arena().allocate(100, static_cast<std::uint32_t>(found.size() - 1));
      range.memory()[0] = static_cast<std::byte>(rank + 1);
      for (std::size_t other = 0; other < found.size(); ++other) {
        const auto neighbour = found[other].neighbours.find(static_cast<int>(rank));
        if (other == rank) continue;
        ASSERT_NE(neighbour, found[other].neighbours.end());
        EXPECT_EQ(neighbour->second.arena.map(range.place()).memory()[0],
                  static_cast<std::byte>(rank + 1));
        processes[rank].fall_asleep();
        neighbour->second.bell().ring();
        EXPECT_TRUE(processes[rank].sleep(20'000));
      }
    }
  }

  std::vector<Process> processes;
  std::vector<Neighbourhood> found;
};

TEST(Neighbours, EverybodyMeetsEverybody) {
  for (const int size : {2, 3, 7}) {
    Job job(size);
    job.meet(make_memory_store());
    job.expect_all_met();
  }
}

TEST(Neighbours, ARankWithoutMemoryIsNone) {
  Job job(4);
  job.meet(make_memory_store(), {2});
  for (const int rank : {0, 1, 2, 3}) {
    EXPECT_EQ(job.found[rank].nodes, (std::vector<int>{0, 0, 1, 0})) << rank;
  }
  EXPECT_THAT(job.neighbours_of(0), testing::ElementsAre(1, 3));
  EXPECT_THAT(job.neighbours_of(2), testing::IsEmpty());
  EXPECT_THAT(job.neighbours_of(3), testing::ElementsAre(0, 1));
}

TEST(Neighbours, NobodyWithMemoryIsNoNode) {
  Job job(3);
  job.meet(make_memory_store(), {0, 1, 2});
  for (const Neighbourhood& found : job.found) EXPECT_TRUE(found.nodes.empty());
}

/// Before the ranks dial, and when they have and the first one is about to look at its queue.
class Strangers : public testing::TestWithParam<const char*> {
 protected:
  /// With the names that ranks 0 and 1 listen at.
  using Act = std::function<void(const LocalConnection&, const std::string&, const std::string&)>;

  /// Rank 0 of three is called on by strangers that each do this.
  void call(int count, const Act& act) {
    std::vector<LocalConnection> strangers;
    Job job(3);
    job.meet(std::make_shared<Ambush>(GetParam(), [&](Store& store) {
      const std::string name = store.get("mccl/local/0", seconds(60));
      const std::string first = store.get("mccl/local/1", seconds(60));
      for (int i = 0; i < count; ++i) {
        strangers.push_back(LocalConnection::dial(name, in(milliseconds(100))));
        if (strangers.back()) act(strangers.back(), name, first);
      }
    }));
    EXPECT_FALSE(strangers.empty());
    job.expect_all_met();
  }
};

TEST_P(Strangers, ThatSayNothingHoldUpNobody) {
  call(10, [](const auto&...) {});
}

TEST_P(Strangers, ThatComeInCrowds) {
  call(65, [](const auto&...) {});
}

TEST_P(Strangers, ThatTalkNonsenseAreIgnored) {
  call(3, [](const LocalConnection& connection, const auto&...) {
    send(connection, std::array<std::byte, sizeof(Introduction)>{}, {0, 1});
  });
}

TEST_P(Strangers, ThatBreakOffAreIgnored) {
  call(3, [](const LocalConnection& connection, const auto&...) {
    send(connection, std::array<std::byte, 10>{});
  });
}

TEST_P(Strangers, WithoutTheKeyAreIgnored) {
  const Process process;
  call(3,
       [&](const LocalConnection& connection, const std::string& name, const std::string& first) {
         send(connection, introduction(1, 0, first, name, "another key"),
              {process.passed().file().get(), process.bell_socket()});
       });
}

TEST_P(Strangers, ThatReplayForAnotherPairAreIgnored) {
  const Process process;
  call(3,
       [&](const LocalConnection& connection, const std::string& name, const std::string& first) {
         send(connection, introduction(1, 2, first, name),
              {process.passed().file().get(), process.bell_socket()});
         Introduction changed = introduction(1, 2, first, name);
         changed.to = 0;
         send(connection, changed, {process.passed().file().get(), process.bell_socket()});
       });
}

INSTANTIATE_TEST_SUITE_P(Come, Strangers, testing::Values("mccl/local/0", "mccl/dialled/1"),
                         [](const auto& info) {
                           return std::string(info.param) == "mccl/local/0" ? "first" : "last";
                         });

/// Rank 1 of two, as a program that goes wrong would be; rank 0 is a real one.
struct Faulty {
  std::shared_ptr<Store> store = make_memory_store();
  std::string name;  // rank 0's

  /// What rank 0 ends with.
  Neighbourhood meet(const std::function<void()>& act, const std::string& dialled,
                     const std::string& mapped) {
    store->set("mccl/local/1", "none");
    store->set("mccl/neighbours/1", mapped);
    std::thread rank1([&] {
      name = store->get("mccl/local/0", seconds(60));
      act();
      store->set("mccl/dialled/1", dialled);
    });
    Process process;
    Neighbourhood found = meet_neighbours(options_of(0, 2, store, &process));
    rank1.join();
    return found;
  }
};

TEST(FaultyNeighbour, MemoryThatCannotBeMappedIsNoError) {
  Faulty faulty;
  LocalConnection connection;
  const Descriptor nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const Neighbourhood found = faulty.meet(
      [&] {
        connection = LocalConnection::dial(faulty.name, in(seconds(20)));
        send(connection, introduction(1, 0, "none", faulty.name), {nothing.get(), nothing.get()});
      },
      "0", "0");
  EXPECT_TRUE(found.neighbours.empty());
  EXPECT_TRUE(found.nodes.empty());
  std::array<std::byte, 1> answer;
  EXPECT_THROW(connection.receive(answer, in(seconds(20))), PeerError) << "it is told so";
}

TEST(FaultyNeighbour, WhoNeverComesIsNotWaitedForLong) {
  Faulty faulty;
  const Neighbourhood found = faulty.meet([] {}, "0", "0");
  EXPECT_TRUE(found.neighbours.empty());
  EXPECT_TRUE(found.nodes.empty());
}

TEST(FaultyNeighbour, ListsWithNonsenseDoNoHarm) {
  Faulty faulty;
  const Neighbourhood found = faulty.meet([] {}, "-7 99 2147483648 x", "0 -1 2 99999999999 y");
  EXPECT_TRUE(found.neighbours.empty());
  EXPECT_TRUE(found.nodes.empty());
}

TEST(FaultyNeighbour, WhoNeverAnswersIsNamed) {
  const std::shared_ptr<Store> store = make_memory_store();
  const LocalListener listener(4);
  store->set("mccl/local/0", listener.name());
  Process process;
  NeighbourOptions options = options_of(1, 2, store, &process);
  options.deadline = in(milliseconds(300));
  try {
    meet_neighbours(options);
    FAIL() << "it met somebody";
  } catch (const TimeoutError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("rank 1 met rank 0"));
  }
}

/// Every way in which up to four ranks can have mapped each other.
TEST(Nodes, AreWhereEveryoneHasMappedEveryone) {
  for (int size = 1; size <= 4; ++size) {
    const int pairs = size * (size - 1);
    for (unsigned bits = 0; bits < 1u << pairs; ++bits) {
      std::vector<std::vector<int>> mapped(size);
      unsigned bit = 0;
      for (int a = 0; a < size; ++a) {
        for (int b = 0; b < size; ++b) {
          if (a != b && (bits >> bit++ & 1) != 0) mapped[a].push_back(b);
        }
      }
      const auto mutual = [&](int a, int b) {
        return std::count(mapped[a].begin(), mapped[a].end(), b) != 0 &&
               std::count(mapped[b].begin(), mapped[b].end(), a) != 0;
      };
      bool any = false;
      for (int a = 0; a < size; ++a) {
        for (int b = 0; b < a; ++b) any |= mutual(a, b);
      }
      const std::vector<int> nodes = nodes_from(mapped);
      ASSERT_EQ(nodes.empty(), !any) << bits;
      if (!any) continue;
      ASSERT_EQ(nodes.size(), static_cast<std::size_t>(size));
      int next = 0;
      for (int a = 0; a < size; ++a) {
        ASSERT_LE(nodes[a], next) << "numbers are not in order of the first rank";
        next = std::max(next, nodes[a] + 1);
        // A pair on one node is mutual; whoever fits into the node of a lower rank is there.
        bool fits_first = a > 0;
        for (int b = 0; b < size; ++b) {
          if (a != b && nodes[a] == nodes[b]) {
            ASSERT_TRUE(mutual(a, b)) << bits;
          }
          if (a != b && nodes[b] == 0) fits_first &= mutual(a, b);
        }
        ASSERT_TRUE(!fits_first || nodes[a] == 0) << bits;
      }
    }
  }
}

}  // namespace
}  // namespace mccl::rendezvous
