#include <array>

#include "support/node_process.h"
#include "support/process_memory.h"
#include "transport/link_conformance.h"
#include "transport/shm/link.h"

namespace mccl::transport {
namespace {

using node::NodeProcess;
using node::PeerArena;
using node::RangePlace;
using shm::ShmLink;

/// Both ends of one link, which could be in different processes.
struct Pair {
  std::array<NodeProcess, 2> processes;

  /// `seen_by_maker`, `seen_by_joiner`: what each end takes for the memory of the other's process.
  LinkPair connect(node::PeerMemory seen_by_maker = {}, node::PeerMemory seen_by_joiner = {}) {
    auto made = ShmLink::make(processes[0].arena(), ShmLink::kUsualRingBytes, processes[1].bell(),
                              "rank 1", seen_by_maker);
    auto joined = ShmLink::join(processes[0].passed(), made->place(), processes[0].bell(), "rank 0",
                                seen_by_joiner);
    return {std::move(made), std::move(joined)};
  }

#ifdef __linux__
  node::PeerMemory memory_of_maker() const {
    return mccl::testing::own_process().memory(processes[0].passed().header());
  }
#endif
};

class Sleeping final : public Waiter {
 public:
  explicit Sleeping(NodeProcess& process) : process_(process) {}
  void prepare() override { process_.fall_asleep(); }
  void cancel() override { process_.wake_up(); }
  bool wait(const Link&, short, int timeout_ms) override { return process_.sleep(timeout_ms); }

 private:
  NodeProcess& process_;
};

/// Makes a factory of links. With `swapped`, the joining end is first.
LinkFactory shared_memory(const char* name, bool swapped) {
  const auto pair = std::make_shared<std::unique_ptr<Pair>>();
  return {name,
          [pair, swapped] {
            *pair = std::make_unique<Pair>();
            LinkPair links = (*pair)->connect();
            if (swapped) std::swap(links.first, links.second);
            return links;
          },
          [pair, swapped](int end) {
            return std::make_unique<Sleeping>((*pair)->processes[swapped ? 1 - end : end]);
          }};
}

INSTANTIATE_TEST_SUITE_P(Shm, LinkConformance,
                         ::testing::Values(shared_memory("maker_first", false),
                                           shared_memory("joiner_first", true)),
                         [](const auto& info) { return info.param.name; });

TEST(ShmLink, HasNoDescriptorAndNamesItsPeer) {
  Pair pair;
  const auto [a, b] = pair.connect();
  EXPECT_EQ(a->descriptor(), -1);
  EXPECT_EQ(b->descriptor(), -1);
  EXPECT_NE(a->description().find("rank 1"), std::string::npos) << a->description();
  EXPECT_NE(b->description().find("rank 0"), std::string::npos) << b->description();
}

#ifdef __linux__

std::uint64_t address_of(const Bytes& bytes) {
  return reinterpret_cast<std::uintptr_t>(bytes.data());
}

TEST(ShmLink, ReadsTheMemoryOfThePeer) {
  Pair pair;
  const auto [a, b] = pair.connect({}, pair.memory_of_maker());
  EXPECT_TRUE(a->lends_memory());
  EXPECT_FALSE(b->lends_memory()) << "the maker cannot read the joiner's memory";
  const Bytes sent(1 << 20, std::byte{7});
  Bytes got(sent.size());
  EXPECT_TRUE(b->read_peer(address_of(sent), got));
  EXPECT_EQ(got, sent);
  EXPECT_FALSE(a->read_peer(address_of(sent), got));
}

TEST(ShmLink, ReportsMemoryThatCannotBeRead) {
  Pair pair;
  const auto [a, b] = pair.connect(pair.memory_of_maker(), pair.memory_of_maker());
  Bytes got(100);
  EXPECT_FALSE(b->read_peer(0, got));
  EXPECT_EQ(a->write(Bytes(10)), 10u) << "the link continues";
  EXPECT_EQ(b->read(got), 10u);
}

/// The peer's program may change its memory once its end is closed, or the memory is withdrawn.
TEST(ShmLink, DoesNotDeliverMemoryThatMayHaveChanged) {
  const Bytes sent(100);
  Bytes got(sent.size());
  for (const bool closes : {false, true}) {
    Pair pair;
    auto [a, b] = pair.connect({}, pair.memory_of_maker());
    closes ? a.reset() : a->withdraw_memory();
    EXPECT_THROW(b->read_peer(address_of(sent), got), LinkClosed);
  }
}

#endif

TEST(ShmLink, DoesNotWakeAPeerThatIsAwake) {
  Pair pair;
  const auto [a, b] = pair.connect();
  const Bytes byte(1);
  EXPECT_EQ(a->write(byte), 1u);
  EXPECT_FALSE(pair.processes[1].sleep(0));
}

/// A process was killed after it announced sleep. Its socket has no reader, and a write to it would
/// raise a signal.
TEST(ShmLink, APeerThatDiedAsleepDoesNoHarm) {
  Pair pair;
  const auto [a, b] = pair.connect();
  pair.processes[1].fall_asleep();
  pair.processes[1].stop_listening();
  EXPECT_EQ(a->write(Bytes(100)), 100u);
}

TEST(ShmLink, DeliversBytesWrittenBeforeThePeerDied) {
  Pair pair;
  const auto [a, b] = pair.connect();
  const Bytes sent(100, std::byte{7});
  a->write(sent);
  b->lose_peer(Loss::reported);
  EXPECT_THROW(b->peek(101), LinkClosed);
  Bytes got(100);
  EXPECT_EQ(b->read(got), 100u);
  EXPECT_EQ(got, sent);
  EXPECT_THROW(b->read(got), LinkClosed);
  EXPECT_THROW(b->peek(1), LinkClosed);
  try {
    b->write(sent);
    FAIL() << "a write to the dead peer succeeded";
  } catch (const LinkClosed& closed) {
    EXPECT_NE(std::string(closed.what()).find("rank 0"), std::string::npos) << closed.what();
  }
}

TEST(ShmLink, MakesNoLinkWithoutMemory) {
  NodeProcess small(std::size_t{600} << 10);
  const NodeProcess peer;
  std::vector<std::unique_ptr<ShmLink>> links;
  for (;;) {
    auto link = ShmLink::make(small.arena(), ShmLink::kUsualRingBytes, peer.bell(), "rank 1");
    if (!link) break;
    links.push_back(std::move(link));
  }
  ASSERT_GT(links.size(), 1u) << "smaller rings must be used when the usual size does not fit";
  EXPECT_EQ(links.front()->peek_capacity(), ShmLink::kUsualRingBytes);
  EXPECT_LT(links.back()->peek_capacity(), ShmLink::kUsualRingBytes);
}

TEST(ShmLink, RefusesAPlaceThatIsTooSmall) {
  NodeProcess maker;
  const NodeProcess joiner;
  const node::Range range = maker.arena().allocate(100, 1);
  try {
    ShmLink::join(maker.passed(), range.place(), joiner.bell(), "rank 4");
    FAIL() << "a range that is too small was accepted";
  } catch (const CorruptionError& error) {
    EXPECT_NE(std::string(error.what()).find("rank 4"), std::string::npos) << error.what();
  }
}

TEST(ShmLink, ReusesMemoryAfterBothEndsAreGone) {
  Pair pair;
  RangePlace first;
  {
    const auto [a, b] = pair.connect();
    first = static_cast<ShmLink&>(*a).place();
  }
  const std::size_t taken = pair.processes[0].arena().taken();
  for (int i = 0; i < 20; ++i) {
    const auto [a, b] = pair.connect();
    EXPECT_EQ(static_cast<ShmLink&>(*a).place().offset, first.offset);
    EXPECT_EQ(a->write(Bytes(10)), 10u);
    EXPECT_EQ(b->peek(1).size(), 10u);
  }
  EXPECT_EQ(pair.processes[0].arena().taken(), taken);
}

}  // namespace
}  // namespace mccl::transport
