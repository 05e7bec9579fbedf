// Two ends make random calls for many steps, while messages are held back, lost and damaged. The
// bytes read must equal the bytes written, up to an error that names the peer. More messages than
// there is room for must never be posted, and nothing may stay open afterwards.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>

#include "support/rdma_ends.h"
#include "support/verbs_double.h"
#include "transport/rdma/link.h"

namespace mccl::transport::rdma {
namespace {

using mccl::testing::Fabric;
using mccl::testing::Fate;
using mccl::testing::RdmaEnds;
using mccl::testing::VerbsDouble;

constexpr std::size_t kLongest = 400'000;

/// Returns `count` bytes of an end's stream, which both ends can compute. Its period is prime and
/// longer than the bytes in flight can be.
std::span<const std::byte> bytes_at(int end, std::uint64_t place, std::size_t count) {
  constexpr std::size_t kPeriod = 1'048'573;
  static const Bytes stream = [] {
    Bytes bytes(kPeriod + kLongest);
    std::mt19937 random(1);
    for (std::size_t i = 0; i < kPeriod; ++i) bytes[i] = static_cast<std::byte>(random());
    std::copy_n(bytes.begin(), kLongest, bytes.begin() + kPeriod);
    return bytes;
  }();
  return std::span(stream).subspan((place + static_cast<std::size_t>(end) * 7919) % kPeriod, count);
}

class Chaos {
 public:
  Chaos(Service service, unsigned seed) : random_(seed), service_(service) {
    verbs_->add("here0", 1);
    verbs_->add("there0", 2);
    ends_ = RdmaEnds::connect(verbs_, "here0", "there0", service);
    ends_.greet();
    for (int end = 0; end < 2; ++end) links_[end] = ends_.link(static_cast<std::size_t>(end));
    verbs_->fabric->judge = [this](Fabric::Message& message) { return fate_of(message); };
  }

  /// Makes up to `steps` random moves. Returns how many were made before the links ended.
  int run(int steps, bool with_faults) {
    faults_ = with_faults;
    for (int step = 0; step < steps; ++step) {
      try {
        move(static_cast<int>(random_() % 2));
      } catch (const PeerError& error) {
        EXPECT_THAT(std::string(error.what()), ::testing::HasSubstr("rank "));
        EXPECT_TRUE(damaged_) << error.what();
        return step;
      } catch (const CorruptionError& error) {
        EXPECT_THAT(std::string(error.what()), ::testing::HasSubstr("rank "));
        EXPECT_TRUE(damaged_) << error.what();
        return step;
      }
      if (::testing::Test::HasFailure()) return step;
    }
    return steps;
  }

  /// Delivers some messages twice from now on.
  void repeat() { repeats_ = true; }

  /// Expects that all bytes written arrive, if nothing was damaged.
  void finish() {
    faults_ = hold_ = false;
    for (int rounds = 0; rounds < 10'000 && (got_[0] < sent_[1] || got_[1] < sent_[0]); ++rounds) {
      verbs_->fabric->release();
      for (int end = 0; end < 2; ++end) read(end);
    }
    EXPECT_EQ(got_[0], sent_[1]);
    EXPECT_EQ(got_[1], sent_[0]);
  }

  ~Chaos() {
    verbs_->fabric->judge = {};
    Fabric& fabric = *verbs_->fabric;
    fabric.release();
    links_[0].reset();
    links_[1].reset();
    for (const auto& station : ends_.stations) {
      station->look(Clock::now() + std::chrono::hours(1));
      EXPECT_EQ(station->pairs(), 0u);
      EXPECT_EQ(station->device().slots().berths_in_use(), 0u);
      EXPECT_EQ(station->device().loans().in_use(), 0u);
    }
    ends_ = {};
    EXPECT_TRUE(fabric.all_closed());
    // Damaged returns of credit, and repeated messages, may exceed the posted receives.
    if (!damaged_ && !repeats_) {
      EXPECT_EQ(fabric.starved, 0u) << "a message was sent without credit";
    }
    EXPECT_EQ(fabric.overflowed, 0u);
    EXPECT_EQ(fabric.strayed, 0u) << "memory was given back before it was read";
    EXPECT_LE(fabric.most_regions, 4u) << "slots and one loan for each end";
  }

 private:
  struct Span {
    Bytes bytes;
    std::size_t at = 0;
  };

  Fate fate_of(Fabric::Message& message) {
    if (faults_ && random_() % 2000 == 0) {
      damaged_ = true;
      switch (random_() % 6) {
        case 0:
          return {Fate::Kind::lost};
        case 1:
          return {Fate::Kind::sender_fails, 1 + static_cast<int>(random_() % 22)};
        case 2:
          return {Fate::Kind::receiver_fails, 1 + static_cast<int>(random_() % 22)};
        case 3:
          return {Fate::Kind::forgotten};
        case 4:
          overtaking_ = true;  // later messages arrive before this one
          return {Fate::Kind::held};
        default:
          // Damages only the header; payload is protected by checksums.
          message.bytes[random_() % kHeaderBytes] ^= static_cast<std::byte>(1 + random_() % 255);
          return {};
      }
    }
    // While messages are held, later ones are held too, to keep their order.
    if (std::exchange(overtaking_, false)) return {};
    if (!verbs_->fabric->held.empty()) return {Fate::Kind::held};
    if (repeats_ && random_() % 8 == 0) return {Fate::Kind::twice};
    return {hold_ && random_() % 4 == 0 ? Fate::Kind::held : Fate::Kind::arrives};
  }

  void move(int end) {
    switch (random_() % 8) {
      case 0:
      case 1:
      case 2:
        return write(end);
      case 3:
      case 4:
      case 5:
        return read(end);
      case 6:
        return ends_.stations[end]->look(Clock::now());
      default:
        return verbs_->fabric->release();
    }
  }

  /// Writes one span after another. A span stays unchanged until the link has released it; then it
  /// is overwritten.
  void write(int end) {
    Span& span = writing_[end];
    if (span.at == span.bytes.size()) {
      if (links_[end]->borrowed() > 0) return;
      std::fill(span.bytes.begin(), span.bytes.end(), std::byte{0xee});
      begin(span, end);
    }
    const std::span<const std::byte> rest = std::span(span.bytes).subspan(span.at);
    // Passes the first bytes as a separate head.
    const std::size_t cut =
        span.at == 0 && !rest.empty() ? random_() % std::min<std::size_t>(rest.size(), 100) : 0;
    const std::size_t taken = links_[end]->write(rest.first(cut), rest.subspan(cut));
    span.at += taken;
    sent_[end] += taken;
  }

  void begin(Span& span, int end) {
    const unsigned kind = random_() % 64;
    const std::size_t most = kind < 8 ? 100'000 : 300;
    // A span often reuses the last one's memory. Some are long enough to be sent without a copy.
    span.bytes.resize(kind == 0 ? Loans::kLeast + random_() % 100'000 : random_() % most);
    span.at = 0;
    const auto sent = bytes_at(end, sent_[end], span.bytes.size());
    std::copy(sent.begin(), sent.end(), span.bytes.begin());
  }

  void read(int end) {
    std::span<const std::byte> seen;
    Bytes got;
    if (random_() % 2 == 0) {
      got.resize(1 + random_() % 100'000);
      seen = std::span(got).first(links_[end]->read(got));
    } else {
      seen = links_[end]->peek(1 + random_() % 8000);
      seen = seen.first(seen.empty() ? 0 : 1 + random_() % seen.size());
      got.assign(seen.begin(), seen.end());
      links_[end]->consume(seen.size());
      seen = got;
    }
    const auto sent = bytes_at(1 - end, got_[end], seen.size());
    // Uses memcmp(), which ThreadSanitizer does not check byte by byte.
    if (!seen.empty() && std::memcmp(seen.data(), sent.data(), seen.size()) != 0) {
      FAIL() << "after byte " << got_[end] << " of end " << 1 - end
             << ", the bytes read differ from those written";
    }
    got_[end] += seen.size();
  }

  std::mt19937 random_;
  const Service service_;
  Span writing_[2];  // destroyed after the links
  const std::shared_ptr<VerbsDouble> verbs_ = std::make_shared<VerbsDouble>();
  RdmaEnds ends_;
  std::unique_ptr<RdmaLink> links_[2];
  bool faults_ = false;
  bool hold_ = true;
  bool repeats_ = false;
  bool damaged_ = false;
  bool overtaking_ = false;
  std::uint64_t sent_[2] = {0, 0};
  std::uint64_t got_[2] = {0, 0};
};

class RdmaRandom : public ::testing::TestWithParam<Service> {};

TEST_P(RdmaRandom, DeliversEveryByte) {
  for (unsigned seed = 0; seed < 10; ++seed) {
    Chaos chaos(GetParam(), seed);
    EXPECT_EQ(chaos.run(20'000, false), 20'000) << "seed " << seed;
    chaos.finish();
    if (HasFailure()) return;
  }
}

/// Only on rc: with uc, a repeat takes a receive that another message needs, which is then lost.
TEST(RdmaRepeats, DuplicatedMessagesChangeNothing) {
  for (unsigned seed = 0; seed < 10; ++seed) {
    Chaos chaos(Service::rc, 500 + seed);
    chaos.repeat();
    EXPECT_EQ(chaos.run(20'000, false), 20'000) << "seed " << seed;
    chaos.finish();
    if (::testing::Test::HasFailure()) return;
  }
}

TEST_P(RdmaRandom, FaultsAreErrorsAndNeverWrongResults) {
  int steps = 0, ended = 0;
  for (unsigned seed = 0; steps < 200'000; ++seed) {
    Chaos chaos(GetParam(), 1000 + seed);
    const int done = chaos.run(20'000, true);
    if (HasFailure()) {
      FAIL() << "seed " << 1000 + seed << ", step " << done;
    }
    ended += done < 20'000;
    steps += std::max(done, 1);
  }
  EXPECT_GT(ended, 10) << "the faults had no effect";
}

INSTANTIATE_TEST_SUITE_P(Services, RdmaRandom, ::testing::Values(Service::uc, Service::rc),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace mccl::transport::rdma
