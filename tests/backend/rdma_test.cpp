// Tests groups whose links use RDMA devices. Each rank is a thread with its own simulated devices,
// as if on its own machine.
#include <gmock/gmock.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <exception>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <thread>
#include <utility>

#include "backend/native/group.h"
#include "engine/engine.h"
#include "support/failure.h"
#include "support/folder.h"
#include "support/ranks.h"
#include "support/verbs_double.h"
#include "transport/rdma/pair/message.h"

namespace mccl {
namespace {

using testing::Fabric;
using testing::Fate;
using ::testing::HasSubstr;
using testing::VerbsDouble;

using transport::rdma::MessageKind;

bool is(MessageKind kind, const Fabric::Message& message) {
  transport::rdma::MessageHeader header;
  std::memcpy(&header, message.bytes.data(), sizeof header);
  return header.kind == static_cast<std::uint16_t>(kind);
}

/// The devices of one rank, and its results.
struct Rank {
  std::shared_ptr<VerbsDouble> verbs;
  std::shared_ptr<Metrics> metrics = std::make_shared<Metrics>();
  std::string failure;
  /// Kept until all threads have ended, so that the engine's thread does not release the exception
  /// last. ThreadSanitizer would report that release, because it does not see the reference count
  /// in the system's library.
  std::exception_ptr error;
};

class RdmaGroups : public ::testing::Test {
 protected:
  RdmaGroups() {
    config_ = testing::test_config();
    config_.transport = "rdma";
    config_.calibrate = false;
    config_.log_level = "OFF";
  }

  void add_ranks(int size) {
    for (int rank = 0; rank < size; ++rank) {
      ranks_.emplace_back();
      ranks_.back().verbs = std::make_shared<VerbsDouble>(fabric_);
      ranks_.back().verbs->add("mem" + std::to_string(rank), static_cast<std::uint8_t>(rank + 1));
    }
  }

  /// Writes a device table in the format of MLX_IBV_DEVICES.
  void write_table(const std::string& text) {
    config_.rdma_device = folder_.path() + "/devices.json";
    std::ofstream(config_.rdma_device) << text;
  }

  /// Runs `body` on every rank, and checks that all device objects are closed afterwards.
  void run(const std::function<void(Group&)>& body) {
    const std::shared_ptr<Store> store = make_memory_store();
    std::vector<std::thread> threads;
    const int size = static_cast<int>(ranks_.size());
    for (int number = 0; number < size; ++number) {
      threads.emplace_back([&, number] {
        Rank& rank = ranks_[static_cast<std::size_t>(number)];
        try {
          const auto engine = engine::Engine::create(
              {number, size, store, config_, rank.metrics, nullptr, rank.verbs});
          std::vector<int> everyone(static_cast<std::size_t>(size));
          std::iota(everyone.begin(), everyone.end(), 0);
          {
            native::NativeGroup world(
                engine, engine->make_group("world", everyone, std::chrono::seconds(60), {}));
            body(world);
          }
          engine->shutdown();
        } catch (const std::exception& error) {
          rank.failure = error.what();
          rank.error = std::current_exception();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    // If an engine's own thread released the last reference, that thread may still be shutting the
    // engine down.
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!fabric_->all_closed() && std::chrono::steady_clock::now() < limit) {
      std::this_thread::yield();
    }
    for (const auto& [call, open] : fabric_->open) EXPECT_EQ(open, 0) << call;
  }
  void expect_good_end() {
    for (const Rank& rank : ranks_) EXPECT_EQ(rank.failure, "");
    EXPECT_EQ(fabric_->starved, 0u);
    EXPECT_EQ(fabric_->overflowed, 0u);
  }

  static void sum_and_check(Group& world, std::size_t count) {
    std::vector<std::int64_t> data(count);
    for (std::size_t i = 0; i < count; ++i) data[i] = static_cast<std::int64_t>(i) + world.rank();
    const Buffer buffer{data.data(), data.size(), DType::i64};
    world.all_reduce(buffer, buffer, {}).wait();
    const std::int64_t size = world.size();
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(data[i], size * static_cast<std::int64_t>(i) + size * (size - 1) / 2);
    }
  }

  /// Sends to the rank `step` places ahead, and receives from the rank `step` places behind.
  static void send_around(Group& world, std::size_t count, int step = 1) {
    std::vector<std::int32_t> mine(count, world.rank()), theirs(count, -1);
    const int next = (world.rank() + step) % world.size();
    const int before = (world.rank() + world.size() - step) % world.size();
    Work sent = world.send(ConstBuffer{mine.data(), count, DType::i32}, next, 3);
    world.recv(Buffer{theirs.data(), count, DType::i32}, before, 3).wait();
    sent.wait();
    EXPECT_EQ(theirs, std::vector<std::int32_t>(count, before));
  }

  const mccl::testing::Folder folder_;
  Config config_;
  const std::shared_ptr<Fabric> fabric_ = std::make_shared<Fabric>();
  std::deque<Rank> ranks_;
};

TEST_F(RdmaGroups, CallsGoThroughTheDevices) {
  for (const char* service : {"rc", "uc"}) {
    for (const int size : {2, 3, 5}) {
      config_.rdma_service = service;
      ranks_.clear();
      add_ranks(size);
      run([](Group& world) {
        for (const std::size_t count : {1, 100, 5'000, 300'000}) {
          sum_and_check(world, count);
          send_around(world, count);
        }
      });
      expect_good_end();
      for (const Rank& rank : ranks_) {
        EXPECT_GT(rank.metrics->summary().rdma_links, 0u);
        EXPECT_EQ(rank.metrics->summary().tcp_links, 0u);
      }
    }
  }
}

/// The topology of cabled machines on a desk: each rank's device reaches only its two neighbours.
TEST_F(RdmaGroups, CollectivesFollowTheRingOfCables) {
  write_table(R"([[null, "mem0", null, "mem0"], ["mem1", null, "mem1", null],
                  [null, "mem2", null, "mem2"], ["mem3", null, "mem3", null]])");
  for (const std::string uncabled : {"relay", "tcp"}) {
    config_.rdma_uncabled = uncabled;
    ranks_.clear();
    add_ranks(4);
    run([](Group& world) {
      for (const std::size_t count : {1, 3'000, 300'000}) sum_and_check(world, count);
    });
    expect_good_end();
    for (const Rank& rank : ranks_) {
      EXPECT_EQ(rank.metrics->summary().rdma_links, 2u);
      // With tcp allowed, the smallest sums use direct links between all ranks.
      EXPECT_EQ(rank.metrics->summary().tcp_links, uncabled == "relay" ? 0u : 1u) << uncabled;
    }
  }
}

TEST_F(RdmaGroups, MessagesBetweenRanksWithoutACableTakeTcp) {
  write_table(R"([[null, "mem0", null, "mem0"], ["mem1", null, "mem1", null],
                  [null, "mem2", null, "mem2"], ["mem3", null, "mem3", null]])");
  add_ranks(4);
  run([](Group& world) { send_around(world, 5'000, 2); });
  expect_good_end();
  for (const Rank& rank : ranks_) {
    EXPECT_EQ(rank.metrics->summary().rdma_links, 0u);
    EXPECT_EQ(rank.metrics->summary().tcp_links, 1u);
  }
}

TEST_F(RdmaGroups, AMeshMayBeUsedAsARing) {
  write_table(R"([[null, "mem0", "mem0", "mem0"], ["mem1", null, "mem1", "mem1"],
                  ["mem2", "mem2", null, "mem2"], ["mem3", "mem3", "mem3", null]])");
  config_.rdma_ring = true;
  add_ranks(4);
  run([](Group& world) { sum_and_check(world, 300'000); });
  expect_good_end();
  for (const Rank& rank : ranks_) EXPECT_EQ(rank.metrics->summary().rdma_links, 2u);
}

TEST_F(RdmaGroups, EveryRankDrawsMissingLinks) {
  write_table(R"([[null, "mem0", "mem0"], ["mem1", null, "mem1"], ["mem2", "gone7", null]])");
  add_ranks(3);
  ranks_[1].verbs->known["mem1"].port.active = false;
  ranks_[1].verbs->known["mem1"].port.state = "PORT_DOWN";
  run([](Group&) {});
  for (const Rank& rank : ranks_) {
    EXPECT_THAT(
        rank.failure,
        ::testing::AllOf(HasSubstr("to 0"), HasSubstr("MISSING mem1"), HasSubstr("MISSING gone7"),
                         HasSubstr("port 1 of mem1 is PORT_DOWN"), HasSubstr("ip link set IF up"),
                         HasSubstr("there is no device gone7 (available: mem2)")));
  }
}

/// Every rank reports the missing cable, even if its own cables are intact.
TEST_F(RdmaGroups, EveryRankReportsAMissingCable) {
  write_table(R"([[null, "mem0", null, "mem0"], ["mem1", null, "mem1", null],
                  [null, "mem2", null, "mem2"], ["mem3", null, "mem3", null]])");
  add_ranks(4);
  ranks_[0].verbs->known["mem0"].port.active = false;
  ranks_[0].verbs->known["mem0"].port.state = "PORT_DOWN";
  run([](Group&) {});
  for (const Rank& rank : ranks_) {
    EXPECT_EQ(rank.failure, ranks_[0].failure);
    EXPECT_THAT(rank.failure, ::testing::AllOf(HasSubstr("rank 0 cannot reach rank 1"),
                                               HasSubstr("MISSING mem0")));
  }
}

TEST_F(RdmaGroups, ATableThatNamesNoDeviceAtAllIsAnError) {
  write_table("[[null, null], [null, null]]");
  add_ranks(2);
  run([](Group&) {});
  for (const Rank& rank : ranks_) EXPECT_THAT(rank.failure, HasSubstr("names no device"));
}

TEST_F(RdmaGroups, SeveralDevicesShareTheWork) {
  add_ranks(2);
  for (Rank& rank : ranks_) rank.verbs->add("more0", 77);
  run([](Group& world) { sum_and_check(world, 1'000'000); });
  expect_good_end();
  EXPECT_EQ(ranks_[0].metrics->summary().rdma_links, 2u);
}

TEST_F(RdmaGroups, EveryRankNamesTheRankWithoutADevice) {
  add_ranks(3);
  ranks_[1].verbs->known.clear();
  run([](Group&) {});
  for (const Rank& rank : ranks_) {
    EXPECT_THAT(rank.failure, ::testing::AllOf(HasSubstr("MCCL_TRANSPORT is rdma"),
                                               HasSubstr("rank 1"), HasSubstr("no RDMA device")));
  }
}

/// The failure is found when the link is made. Both ranks fall back to TCP, and the result is
/// correct.
TEST_F(RdmaGroups, AnUnavailableQueuePairIsReplacedByTcp) {
  for (const std::string call : {"ibv_modify_qp", "ibv_create_qp", "ibv_reg_mr"}) {
    ranks_.clear();
    add_ranks(2);
    fabric_->gate = [&](const std::string& made) { return made == call ? ENOMEM : 0; };
    run([](Group& world) { sum_and_check(world, 10'000); });
    for (const Rank& rank : ranks_) {
      EXPECT_EQ(rank.failure, "");
      EXPECT_EQ(rank.metrics->summary().tcp_links, 1u);
    }
  }
}

TEST_F(RdmaGroups, ASilentPathIsReplacedByTcp) {
  config_.rdma_service = "uc";
  add_ranks(2);
  fabric_->judge = [](Fabric::Message&) { return Fate{Fate::Kind::lost}; };
  run([](Group& world) { sum_and_check(world, 10'000); });
  for (const Rank& rank : ranks_) {
    EXPECT_EQ(rank.failure, "");
    EXPECT_EQ(rank.metrics->summary().tcp_links, 1u);
    EXPECT_EQ(rank.metrics->summary().rdma_links, 0u);
  }
}

/// The last message of the greeting is lost or refused when the other end already has a link. Both
/// ends must reach the same outcome.
TEST_F(RdmaGroups, ALostFinalGreetingIsAnErrorOnBothEnds) {
  for (const bool refused : {false, true}) {
    config_.rdma_service = refused ? "rc" : "uc";
    ranks_.clear();
    add_ranks(2);
    fabric_->judge = [](Fabric::Message& message) {
      return Fate{is(MessageKind::ready, message) ? Fate::Kind::lost : Fate::Kind::arrives};
    };
    int sends = 0;  // the third is the last message of the greeting
    fabric_->gate = [&](const std::string& call) {
      return refused && call == "ibv_post_send" && ++sends == 3 ? ENOMEM : 0;
    };
    if (refused) fabric_->judge = {};
    run([](Group& world) { sum_and_check(world, 10'000); });
    fabric_->gate = {};
    for (const Rank& rank : ranks_) {
      if (refused) {
        EXPECT_EQ(rank.failure, "");
        EXPECT_EQ(rank.metrics->summary().tcp_links, 1u) << "this end did not fall back to tcp";
      } else {
        EXPECT_THAT(rank.failure, HasSubstr("lost in transit"));
      }
    }
  }
}

/// The receiver must get the error of a failed send even though the sender's call has returned and
/// the sender makes no other call.
TEST_F(RdmaGroups, ReportsASendThatFailsAfterItsCall) {
  for (const char* service : {"uc", "rc"}) {
    config_.rdma_service = service;
    ranks_.clear();
    add_ranks(2);
    std::atomic<bool> over{false};
    int messages = 0;
    fabric_->judge = [&](Fabric::Message& message) {
      const bool fails = is(MessageKind::data, message) && ++messages == 2;
      return fails ? Fate{Fate::Kind::sender_fails, 12} : Fate();
    };
    run([&](Group& world) {
      std::int64_t value = 7;
      for (int i = 0; i < 2; ++i) {
        if (world.rank() == 0) {
          world.send(ConstBuffer{&value, 1, DType::i64}, 1, 7).wait();
        } else {
          const std::string said = testing::failure_of([&] {
            world.recv(Buffer{&value, 1, DType::i64}, 0, 7).wait();
          });
          EXPECT_THAT(said, HasSubstr(i == 0 ? "no failure" : "sending a message failed"));
        }
      }
      if (world.rank() == 1) over = true;
      while (!over) std::this_thread::yield();
    });
  }
}

/// A rank receives its message and ends, but the messages that close its links are lost. The other
/// ranks need no data from that rank, so their group must not fail.
TEST_F(RdmaGroups, ADepartedRankDoesNotFailTheGroupOfTheOthers) {
  config_.rdma_service = "uc";
  config_.liveness_interval = 1;
  add_ranks(3);
  fabric_->judge = [](Fabric::Message& message) {
    using transport::rdma::MessageKind;
    const auto kind = message.bytes[offsetof(transport::rdma::MessageHeader, kind)];
    const bool is_close = static_cast<MessageKind>(kind) == MessageKind::close;
    return is_close ? Fate{Fate::Kind::lost} : Fate();
  };
  run([](Group& world) {
    std::array<std::int32_t, 8> data{};
    const Buffer buffer{data.data(), data.size(), DType::i32};
    const ConstBuffer given{data.data(), data.size(), DType::i32};
    if (world.rank() == 0) world.send(given, 2, 1).wait();
    if (world.rank() == 2) return world.recv(buffer, 0, 1).wait();
    // The other ranks go on for longer than a link waits for the closing message.
    const auto end = Clock::now() + std::chrono::seconds(4);
    for (bool goes_on = true; goes_on;) {
      data[0] = world.rank() == 0 && Clock::now() < end ? 1 : 0;
      if (world.rank() == 0) world.send(given, 1, 2).wait();
      if (world.rank() == 1) world.recv(buffer, 0, 2).wait();
      goes_on = data[0] == 1;
    }
  });
  fabric_->judge = {};
  for (const Rank& rank : ranks_) EXPECT_EQ(rank.failure, "");
}

TEST_F(RdmaGroups, AFailureDuringACollectiveEndsItOnEveryRank) {
  for (const Fate::Kind kind : {Fate::Kind::lost, Fate::Kind::sender_fails,
                                Fate::Kind::receiver_fails, Fate::Kind::forgotten}) {
    for (const char* service : {"uc", "rc"}) {
      config_.rdma_service = service;
      config_.timeout = 20;
      ranks_.clear();
      add_ranks(3);
      int messages = 0;
      fabric_->judge = [&](Fabric::Message&) {
        return ++messages == 200 ? Fate{kind, 12} : Fate();
      };
      run([](Group& world) {
        for (int i = 0; i < 100; ++i) sum_and_check(world, i % 2 == 0 ? 40'000 : 150'000);
      });
      for (const Rank& rank : ranks_) EXPECT_THAT(rank.failure, HasSubstr("rank "));
    }
  }
}

/// Checks that each letter of `order` occurs `times` times in `said`, and that the n-th occurrence
/// of a letter follows the n-th occurrence of its predecessor in `order`. Returns "" or the defect.
std::string out_of_order(const std::string& said, const std::string& order, int times) {
  std::map<char, int> counts;
  for (const char letter : said) {
    const std::size_t place = order.find(letter);
    ++counts[letter];
    if (place > 0 && counts[letter] > counts[order[place - 1]])
      return std::string(1, letter) + " came too early";
  }
  for (const char letter : order) {
    if (counts[letter] != times) return std::string(1, letter) + " is missing";
  }
  return "";
}

using Say = std::function<void(char)>;

/// Runs `job`, which makes two ranks, in a child process, and sends SIGTERM to the child when `job`
/// says '!'. Every queue pair must be closed before its memory region, the region before the
/// domain, and the device last. Then the process dies of the signal.
void expect_closed_in_order(Fabric& fabric, const std::function<void(const Say&)>& job) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);  // ends a child that never says '!'
    const Say say = [&ends](char letter) {
      if (::write(ends[1], &letter, 1) != 1) ::_exit(3);
    };
    const std::map<std::string, char> letters = {{"ibv_create_qp", 'q'},
                                                 {"ibv_create_cq", 'c'},
                                                 {"ibv_reg_mr", 'm'},
                                                 {"ibv_alloc_pd", 'p'},
                                                 {"ibv_open_device", 'd'}};
    fabric.on_close = [&](const std::string& call) {
      if (const auto letter = letters.find(call); letter != letters.end()) say(letter->second);
    };
    job(say);
    for (;;) ::pause();
  }
  ::close(ends[1]);
  std::string closed;
  for (char letter = 0; ::read(ends[0], &letter, 1) == 1;) {
    if (letter != '!') closed += letter;
    if (letter == '!') ::kill(child, SIGTERM);
  }
  ::close(ends[0]);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) << status;
  EXPECT_EQ(out_of_order(closed, "qcmpd", 2), "") << closed;
}

TEST_F(RdmaGroups, OnSigtermDevicesAreClosedInOrder) {
  add_ranks(2);
  expect_closed_in_order(*fabric_, [this](const Say& say) {
    run([&](Group& world) {
      sum_and_check(world, 1'000);
      if (world.rank() == 0) say('!');
      for (;;) sum_and_check(world, 1'000);
    });
  });
}

/// The signal arrives while the ranks' own threads shut their engines down. The process is given
/// enough time to die without its devices closed.
TEST_F(RdmaGroups, OnSigtermDuringAShutdownDevicesAreClosedInOrder) {
  add_ranks(2);
  expect_closed_in_order(*fabric_, [this](const Say& say) {
    std::atomic<bool> closes{false};
    const auto tell = std::exchange(fabric_->on_close, nullptr);
    fabric_->on_close = [&](const std::string& call) {
      tell(call);
      if (closes.exchange(true)) return;
      say('!');
      (void)::poll(nullptr, 0, 200);
    };
    run([](Group& world) { sum_and_check(world, 1'000); });
  });
}

TEST_F(RdmaGroups, ADeviceThatGoesAwayEndsTheCallsThatNeedIt) {
  add_ranks(2);
  std::atomic<int> rounds{0};
  run([&](Group& world) {
    for (int i = 0; i < 1000; ++i) {
      if (world.rank() == 0 && ++rounds == 10) {
        fabric_->report("mem0",
                        {transport::rdma::DeviceEvent::Kind::device_gone, 0, "the device is gone"});
      }
      sum_and_check(world, 10'000);
      if (i > 10) std::this_thread::yield();
    }
  });
  EXPECT_THAT(ranks_[0].failure, HasSubstr("device mem0: the device is gone"));
  EXPECT_NE(ranks_[1].failure, "");
}

}  // namespace
}  // namespace mccl
