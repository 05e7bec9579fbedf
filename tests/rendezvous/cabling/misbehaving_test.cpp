// Tests a rank that has the key and sends invalid messages to its neighbours, or loses a connection
// to one of them.
#include <gmock/gmock.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <exception>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "mccl/context.h"
#include "mccl/error.h"
#include "rendezvous/cabling/discovery.h"
#include "rendezvous/cabling/wiring.h"
#include "rendezvous/connections/accepting.h"
#include "rendezvous/meeting/join.h"
#include "support/free_places.h"

namespace mccl::rendezvous {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kKey = "a key of these tests";
constexpr int kSize = 4;
constexpr int kLiar = 2;

bool in_a_line(int a, int b) { return a + 1 == b || b + 1 == a; }

/// A rank that connects to the others like any rank, and then calls `act` on its connection to a
/// neighbour.
class Liar {
 public:
  enum class When { before, after };

  using Act = std::function<void(int connection)>;

  Liar(const AddressTable& table, When when, const Bytes& nonsense)
      : Liar(table, when, [nonsense](int connection) {
          EXPECT_EQ(::write(connection, nonsense.data(), nonsense.size()),
                    static_cast<ssize_t>(nonsense.size()));
        }) {}
  Liar(const AddressTable& table, When when, Act act) : act_(std::move(act)), when_(when) {
    const auto& own = table[kLiar].front();
    const Party self{kLiar, kSize, kKey, {}};
    std::vector<transport::tcp::Listener> listeners;
    listeners.emplace_back(transport::tcp::Address::wildcard(AF_INET6, own.port), 0);
    AddressTable neighbours = table;
    for (int rank = 0; rank < kSize; ++rank) {
      // The liar must not dial, so that exactly one connection, dialed by rank 1, remains.
      if (rank < kLiar || !in_a_line(kLiar, rank))
        neighbours[static_cast<std::size_t>(rank)].clear();
    }
    acceptor_ =
        std::make_unique<Acceptor>(std::move(listeners), self, Log(kLiar, LogLevel::off), [] {});
    discovery_ = std::make_unique<Discovery>(self, neighbours, own.port, Log(kLiar, LogLevel::off));
    thread_ = std::thread([this] { run(); });
  }
  ~Liar() {
    stop_ = true;
    thread_.join();
    if (victim_ >= 0) ::close(victim_);
  }

 private:
  void run() {
    while (!stop_) {
      const Clock::time_point now = Clock::now();
      std::vector<Newcomer> newcomers;
      acceptor_->advance(now, newcomers);
      for (Newcomer& newcomer : newcomers) take(newcomer);
      discovery_->advance(now);
      const bool its_time = when_ == When::before || discovery_->cabling();
      if (victim_ >= 0 && its_time && act_) std::exchange(act_, {})(victim_);
      std::vector<pollfd> watched;
      acceptor_->watch(watched);
      discovery_->watch(watched);
      ::poll(watched.data(), static_cast<nfds_t>(watched.size()), 5);
    }
  }

  void take(Newcomer& newcomer) {
    if (newcomer.key.purpose != transport::Purpose::cable) return;
    if (!in_a_line(kLiar, newcomer.peer)) return;
    if (newcomer.peer == 1 && victim_ < 0) victim_ = ::dup(newcomer.socket.descriptor());
    discovery_->connected(newcomer.peer, std::move(newcomer.socket), 0, Clock::now());
  }

  Act act_;
  When when_;
  std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<Discovery> discovery_;
  int victim_ = -1;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

std::shared_ptr<Wiring> wiring_of(int rank, const AddressTable& table) {
  Config config;
  config.job_key = kKey;
  config.log_level = "OFF";
  return std::make_shared<Wiring>(
      WiringOptions{.rank = rank,
                    .table = table,
                    .config = config,
                    .deadline = Clock::now() + 30s,
                    .may_reach = [rank](int peer) { return in_a_line(rank, peer); }});
}

/// Runs `body` on the other ranks of a line. Returns the error of each rank, or "" if there was
/// none.
template <typename Expected>
std::vector<std::string> ends_of_others(
    const AddressTable& table,
    const std::function<void(int rank, const std::shared_ptr<Wiring>&)>& body) {
  std::vector<std::string> ends(kSize);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kSize; ++rank) {
    if (rank == kLiar) continue;
    ranks.emplace_back([&, rank] {
      try {
        body(rank, wiring_of(rank, table));
      } catch (const Expected& error) {
        ends[static_cast<std::size_t>(rank)] = error.what();
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  ends.erase(ends.begin() + kLiar);
  return ends;
}

Bytes noise(std::size_t bytes) {
  Bytes found(bytes);
  for (std::size_t i = 0; i < bytes; ++i) found[i] = static_cast<std::byte>(i * 151 + 7);
  return found;
}

/// Makes a sighting that claims a cable between two other ranks.
Bytes lie() {
  return encode({CableNews::Kind::sighting,
                 {kLiar, 1000, true, 5000, {{.a = 0, .b = 3, .at_a = "a", .at_b = "b"}}}});
}

/// Makes a decision whose cables do not join all ranks.
Bytes usurpation() {
  CableNews news{CableNews::Kind::decision, {}, {}, {1, 2, 3, 4}};
  news.sighting.cables = {{.a = 1, .b = 2, .at_a = "a", .at_b = "b"}};
  return encode(news);
}

TEST(ARankThatMisbehaves, IsNamedByAllBeforeTheyAgree) {
  for (const Bytes& nonsense : {noise(500), lie(), usurpation()}) {
    const AddressTable table = support::free_places(kSize);
    const Liar liar(table, Liar::When::before, nonsense);
    const auto wait = [](int, const std::shared_ptr<Wiring>& wiring) { wiring->wait(); };
    EXPECT_THAT(ends_of_others<CorruptionError>(table, wait),
                Each(AllOf(StartsWith("rank 2 at 127.0.0."),
                           HasSubstr(" violates the protocol, as seen by rank 1: "))));
  }
}

constexpr const char* kWhy =
    "the cable between rank 1 (127.0.0.1) and rank 2 (127.0.0.3): rank 2 violates the protocol: "
    "its message about the cables is malformed";

TEST(ARankThatMisbehaves, HasItsCableTreatedAsCutAfterwards) {
  const AddressTable table = support::free_places(kSize);
  const Liar liar(table, Liar::When::after, noise(500));
  std::latch all_have_seen(kSize - 1);
  const auto wait_for_cut = [&](int, const std::shared_ptr<Wiring>& wiring) {
    wiring->wait();
    std::vector<CutCable> cut;
    while ((cut = wiring->take_cut()).empty()) std::this_thread::sleep_for(1ms);
    // A rank that leaves too early might not have forwarded the cut.
    all_have_seen.arrive_and_wait();
    EXPECT_EQ(text_of(cut.front().cable) + ": " + cut.front().why, kWhy);
  };
  EXPECT_THAT(ends_of_others<PeerError>(table, wait_for_cut), Each(""));
}

void reset(int connection) {
  const sockaddr nobody = {.sa_family = AF_UNSPEC};
  EXPECT_EQ(::connect(connection, &nobody, sizeof nobody), 0);
}

TEST(ARankThatLives, IsNotTakenForDeadWhenItsConnectionIsReset) {
  const AddressTable table = support::free_places(kSize);
  const Liar honest(table, Liar::When::after, &reset);
  std::latch all_have_looked(kSize - 1);
  const auto look_for_long = [&](int, const std::shared_ptr<Wiring>& wiring) {
    std::exception_ptr trouble;
    try {
      wiring->wait();
      for (const auto end = Clock::now() + 1500ms; Clock::now() < end;) {
        wiring->check();
        std::this_thread::sleep_for(10ms);
      }
    } catch (...) {
      trouble = std::current_exception();
    }
    // A rank that leaves while others meet would be reported as dead, so all ranks stay.
    all_have_looked.arrive_and_wait();
    if (trouble) std::rethrow_exception(trouble);
  };
  EXPECT_THAT(ends_of_others<PeerError>(table, look_for_long), Each(""));
}

TEST(ARankThatMisbehaves, FailsTheMeetingOnEveryRank) {
  const AddressTable table = support::free_places(kSize);
  const Liar liar(table, Liar::When::after, noise(500));
  const auto join = [](int rank, const std::shared_ptr<Wiring>& wiring) {
    wiring->wait();
    ContextOptions options;
    options.rank = rank;
    options.size = kSize;
    options.config.transport = "tcp";
    options.config.job_key = kKey;
    options.store =
        make_wired_store(wiring, rank, {.job_key = kKey}, 30s, {{.level = "OFF"}, nullptr});
    options.wiring = wiring;
    Context::create(options);
    ADD_FAILURE() << "rank " << rank << " has met the others";
  };
  EXPECT_THAT(ends_of_others<PeerError>(table, join), Each(HasSubstr(kWhy)));
}

}  // namespace
}  // namespace mccl::rendezvous
