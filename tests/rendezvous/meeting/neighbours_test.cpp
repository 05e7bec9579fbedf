#include "rendezvous/meeting/neighbours.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "mccl/error.h"
#include "mccl/store.h"
#include "node/local_socket.h"
#include "rendezvous/connections/proof.h"
#include "support/node_process.h"
#include "transport/tcp/link.h"

namespace mccl::rendezvous {
namespace {

using node::LocalConnection;
using node::LocalListener;
using node::NodeProcess;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr const char* kKey = "the job's key";
constexpr std::string_view kProofLabel = "mccl neighbour";

Clock::time_point in(milliseconds time) { return Clock::now() + time; }

/// The message sent over the local sockets.
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
  EXPECT_TRUE(connection.send(std::as_bytes(std::span(&what, 1)), passed));
}

/// The control connections between the ranks of a job.
class Controls {
 public:
  explicit Controls(int size) : links_(static_cast<std::size_t>(size)) {
    for (auto& row : links_) row.resize(links_.size());
    for (std::size_t a = 0; a < links_.size(); ++a) {
      for (std::size_t b = 0; b < a; ++b) {
        int ends[2];
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
        links_[a][b] = make_link(ends[0]);
        links_[b][a] = make_link(ends[1]);
      }
    }
  }

  std::vector<transport::Link*> of(int rank) const {
    std::vector<transport::Link*> row;
    for (const auto& link : links_[static_cast<std::size_t>(rank)]) row.push_back(link.get());
    return row;
  }
  /// Closes the connections of a rank, as its death would.
  void close(int rank) {
    for (auto& link : links_[static_cast<std::size_t>(rank)]) link.reset();
  }

 private:
  static std::unique_ptr<transport::Link> make_link(int end) {
    transport::tcp::Socket socket(end);
    transport::tcp::make_non_blocking(socket);
    return std::make_unique<transport::tcp::TcpLink>(std::move(socket), "a rank");
  }

  std::vector<std::vector<std::unique_ptr<transport::Link>>> links_;
};

/// All ranks of a job, as threads of this process.
struct Job {
  explicit Job(int size)
      : processes(static_cast<std::size_t>(size)),
        listeners(processes.size()),
        found(processes.size()),
        controls(size) {
    for (auto& listener : listeners) listener.emplace(size + 64);
  }

  NeighbourOptions options_of(int rank) {
    NeighbourOptions options;
    options.rank = rank;
    options.key = kKey;
    for (const auto& listener : listeners) {
      options.names.push_back(listener ? listener->name() : kNoMemory);
    }
    if (auto& own = listeners[static_cast<std::size_t>(rank)]) {
      options.listener = &*own;
      options.arena = &processes[static_cast<std::size_t>(rank)].arena();
      options.bell_pipe = processes[static_cast<std::size_t>(rank)].bell_socket();
    }
    options.controls = controls.of(rank);
    options.deadline = in(seconds(60));
    options.watch_beside = [](auto&) {};
    options.advance_beside = [this, rank] {
      if (rank == 0 && looks++ == 1 && meanwhile) meanwhile();
    };
    return options;
  }

  void meet() {
    std::vector<std::thread> threads;
    const int size = static_cast<int>(processes.size());
    const auto store = make_memory_store();
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          const Exchange exchange(*store, {}, rank, size, in(seconds(60)));
          found[rank] = agree_on_nodes(exchange, rank, size, find_neighbours(options_of(rank)));
        } catch (const std::exception& error) {
          ADD_FAILURE() << "rank " << rank << ": " << error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  std::vector<int> neighbours_of(int rank) const {
    std::vector<int> ranks;
    for (const auto& [peer, neighbour] : found[rank].neighbours) ranks.push_back(peer.number());
    return ranks;
  }

  /// Expects that all ranks found each other, with the right memory and bell for each rank.
  void expect_all_met() {
    for (std::size_t rank = 0; rank < found.size(); ++rank) {
      EXPECT_EQ(found[rank].nodes, std::vector<int>(found.size(), 0));
      EXPECT_EQ(found[rank].neighbours.size(), found.size() - 1);
      const node::Range range =
          processes[rank].arena().allocate(100, static_cast<std::uint32_t>(found.size() - 1));
      range.memory()[0] = static_cast<std::byte>(rank + 1);
      for (std::size_t other = 0; other < found.size(); ++other) {
        const auto neighbour = found[other].neighbours.find(WorldRank(static_cast<int>(rank)));
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

  std::vector<NodeProcess> processes;
  std::vector<std::optional<LocalListener>> listeners;  // empty: no shared memory
  std::vector<node::SharedMemory> found;
  Controls controls;
  std::function<void()> meanwhile;  // called once, after rank 0 has begun
  int looks = 0;
};

TEST(Neighbours, EveryPairConnects) {
  for (const int size : {2, 3, 7, 12}) {
    Job job(size);
    job.meet();
    job.expect_all_met();
  }
}

TEST(Neighbours, ARankWithoutMemoryIsNotANeighbour) {
  Job job(4);
  job.listeners[2].reset();
  job.meet();
  for (const int rank : {0, 1, 2, 3}) {
    EXPECT_EQ(job.found[rank].nodes, (std::vector<int>{0, 0, 1, 0})) << rank;
  }
  EXPECT_THAT(job.neighbours_of(0), ::testing::ElementsAre(1, 3));
  EXPECT_THAT(job.neighbours_of(2), ::testing::IsEmpty());
  EXPECT_THAT(job.neighbours_of(3), ::testing::ElementsAre(0, 1));
}

TEST(Neighbours, RanksWithoutMemoryFormNoNode) {
  Job job(3);
  for (auto& listener : job.listeners) listener.reset();
  job.meet();
  for (const node::SharedMemory& found : job.found) EXPECT_TRUE(found.nodes.empty());
}

/// The number of descriptors that a rank holds while it looks for neighbours must not grow with the
/// number of ranks. A connection to every rank at the same time would take four descriptors each.
TEST(Neighbours, FewLocalConnectionsAreOpenAtATime) {
  constexpr int kSize = 12;
  Job job(kSize);
  NeighbourOptions options = job.options_of(kSize - 1);
  std::size_t most = 0;
  int looks = 0;
  options.advance_beside = [&] {
    std::size_t waiting = 0;
    for (int peer = 0; peer < kSize - 1; ++peer) {
      pollfd entry = {job.listeners[static_cast<std::size_t>(peer)]->descriptor(), POLLIN, 0};
      waiting += static_cast<std::size_t>(::poll(&entry, 1, 0) > 0);
    }
    most = std::max(most, waiting);
    if (++looks == 4) throw Error("seen");
  };
  EXPECT_THROW(find_neighbours(options), Error);
  EXPECT_EQ(most, 4u);
}

TEST(Neighbours, ADeathMeanwhileIsAnErrorThatNamesTheRank) {
  Job job(3);
  job.controls.close(2);
  try {
    find_neighbours(job.options_of(0));
    FAIL() << "the dead rank was not noticed";
  } catch (const PeerError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("rank 2 died while the ranks connected"));
  }
}

/// Processes outside the job that connect to rank 0, before or while the ranks dial each other.
class Strangers : public ::testing::TestWithParam<const char*> {
 protected:
  /// Called with the names at which ranks 0 and 1 listen.
  using Act = std::function<void(const LocalConnection&, const std::string&, const std::string&)>;

  /// Lets `count` strangers connect to rank 0 of three and call `act`.
  void call(int count, const Act& act) {
    std::vector<LocalConnection> strangers;
    Job job(3);
    const auto come = [&] {
      const std::string& name = job.listeners[0]->name();
      for (int i = 0; i < count; ++i) {
        strangers.push_back(LocalConnection::dial(name).first);
        if (strangers.back()) act(strangers.back(), name, job.listeners[1]->name());
      }
    };
    if (std::string(GetParam()) == "first") {
      come();
    } else {
      job.meanwhile = come;
    }
    job.meet();
    EXPECT_FALSE(strangers.empty());
    job.expect_all_met();
  }
};

TEST_P(Strangers, ThatSendNothingDelayNoRank) {
  call(10, [](const auto&...) {});
}

TEST_P(Strangers, ThatConnectInLargeNumbersAreIgnored) {
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
  const NodeProcess process;
  call(3,
       [&](const LocalConnection& connection, const std::string& name, const std::string& first) {
         send(connection, introduction(1, 0, first, name, "another key"),
              {process.passed().file().get(), process.bell_socket()});
       });
}

TEST_P(Strangers, ThatReplayForAnotherPairAreIgnored) {
  const NodeProcess process;
  call(3,
       [&](const LocalConnection& connection, const std::string& name, const std::string& first) {
         send(connection, introduction(1, 2, first, name),
              {process.passed().file().get(), process.bell_socket()});
         Introduction changed = introduction(1, 2, first, name);
         changed.to = 0;
         send(connection, changed, {process.passed().file().get(), process.bell_socket()});
       });
}

INSTANTIATE_TEST_SUITE_P(Come, Strangers, ::testing::Values("first", "meanwhile"),
                         [](const auto& info) { return std::string(info.param); });

/// Simulates a faulty rank 1 of two; rank 0 runs the real code.
struct Faulty {
  Job job{2};

  Faulty() { job.listeners[1].reset(); }

  /// Lets rank 1 call `act` and report that it is done. Returns what rank 0 finds.
  node::Neighbours meet(const std::function<void(const std::string& name)>& act) {
    NeighbourOptions options = job.options_of(0);
    options.names[1] = "none";
    act(options.names[0]);
    const std::byte settled{1};
    EXPECT_EQ(job.controls.of(1)[0]->write(std::span(&settled, 1)), 1u);
    return find_neighbours(options);
  }
};

TEST(FaultyNeighbour, UnmappableMemoryIsNotAnError) {
  Faulty faulty;
  LocalConnection connection;
  const Descriptor nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  // The report that rank 1 is done could arrive before its introduction, so this test never sends
  // the report.
  NeighbourOptions options = faulty.job.options_of(0);
  options.names[1] = "none";
  options.deadline = in(seconds(1));
  connection = LocalConnection::dial(options.names[0]).first;
  send(connection, introduction(1, 0, "none", options.names[0]), {nothing.get(), nothing.get()});
  EXPECT_THROW(find_neighbours(options), TimeoutError);
  std::array<std::byte, 1> answer;
  EXPECT_THROW(connection.receive(answer, in(seconds(20))), PeerError)
      << "rank 0 must close the connection";
}

TEST(FaultyNeighbour, StopsWaitingForANeighbourThatDeclines) {
  Faulty faulty;
  EXPECT_TRUE(faulty.meet([](const std::string&) {}).empty());
}

TEST(FaultyNeighbour, IgnoresMalformedLists) {
  const auto store = make_memory_store();
  store->set("neighbours/1", with_proof({}, "neighbours/1", "0 -1 2 99999999999 y"));
  const node::SharedMemory found =
      agree_on_nodes(Exchange(*store, {}, 0, 2, in(seconds(20))), 0, 2, node::Neighbours());
  EXPECT_TRUE(found.nodes.empty());
}

TEST(FaultyNeighbour, NamesANeighbourThatNeverAnswers) {
  Job job(2);
  NeighbourOptions options = job.options_of(1);
  options.deadline = in(milliseconds(300));
  try {
    find_neighbours(options);
    FAIL() << "a neighbour that never answers was accepted";
  } catch (const TimeoutError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("with these ranks of this host: 0"));
  }
}

}  // namespace
}  // namespace mccl::rendezvous
