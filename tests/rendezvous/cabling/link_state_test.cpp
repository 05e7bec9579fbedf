#include "rendezvous/cabling/link_state.h"

#include <gmock/gmock.h>

#include <deque>
#include <random>
#include <set>

#include "mccl/error.h"

namespace mccl::rendezvous {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Cable cable(int a, int b) {
  return {.a = a,
          .b = b,
          .at_a = "10.0." + std::to_string(a) + ".1",
          .at_b = "10.0." + std::to_string(a) + ".2"};
}

CableNews round_trip(const CableNews& news, int size) {
  const Bytes bytes = encode(news);
  EXPECT_EQ(news_bytes(std::span(bytes).first(kNewsHeaderBytes)), bytes.size() - kNewsHeaderBytes);
  return decode_news(std::span(bytes).subspan(kNewsHeaderBytes), size);
}

TEST(CableNews, SurviveEncodingAndDecoding) {
  const CableNews news{CableNews::Kind::sighting, {2, 7, true, 5100, {cable(0, 2), cable(2, 3)}}};
  const CableNews found = round_trip(news, 4);
  EXPECT_EQ(found.kind, news.kind);
  EXPECT_EQ(found.sighting, news.sighting);
  EXPECT_EQ(round_trip({CableNews::Kind::alive, {}}, 4).kind, CableNews::Kind::alive);
  const CableNews decision{CableNews::Kind::decision, {}, {}, {5, 6, 7, 8}};
  EXPECT_EQ(round_trip(decision, 4).ports, decision.ports);
  EXPECT_THROW(round_trip(decision, 3), CorruptionError);
}

TEST(CableNews, RefusesNewsThatNoRankCanHaveSent) {
  const CableNews news{CableNews::Kind::sighting, {2, 7, true, 5100, {cable(0, 2)}}};
  const Bytes whole = encode(news);
  const auto body = std::span(whole).subspan(kNewsHeaderBytes);
  EXPECT_THROW(decode_news(body, 2), CorruptionError);  // has a rank beyond the last
  for (std::size_t bytes = 0; bytes < body.size(); ++bytes)
    EXPECT_THROW(decode_news(body.first(bytes), 4), CorruptionError) << bytes;
  Bytes longer(body.begin(), body.end());
  longer.push_back(std::byte{0});
  EXPECT_THROW(decode_news(longer, 4), CorruptionError);
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  EXPECT_THROW(decode_news(bytes_of(deep), 4), CorruptionError);
  for (const std::uint32_t bytes : {0U, 0xffffffffU}) {
    Bytes header;
    append(header, bytes);
    EXPECT_THROW(news_bytes(header), CorruptionError);
  }
}

TEST(LinkState, IgnoresOldNewsAndEchoes) {
  LinkState state(0, 3, 5100);
  const CableNews news{CableNews::Kind::sighting, {1, 2, false, 5101, {cable(0, 1)}}};
  EXPECT_TRUE(state.hear(news));
  EXPECT_FALSE(state.hear(news));
  CableNews older = news;
  older.sighting.version = 1;
  EXPECT_FALSE(state.hear(older));
  EXPECT_FALSE(state.hear({CableNews::Kind::sighting, state.own()}));
  EXPECT_EQ(state.sighting_of(1)->port, 5101);
  EXPECT_THAT(state.unheard(), ElementsAre(2));
  EXPECT_THAT(state.unsettled(), ElementsAre(0, 1));
}

TEST(LinkState, OverridesReportsOfAnEarlierProcessOfThisRank) {
  LinkState others(0, 3, 5100);
  const CableNews before{CableNews::Kind::sighting, {1, 9, true, 5101, {cable(0, 1), cable(1, 2)}}};
  EXPECT_TRUE(others.hear(before));

  LinkState again(1, 3, 5101);
  EXPECT_TRUE(again.see({cable(0, 1)}, false));
  EXPECT_TRUE(again.hear(before));
  EXPECT_TRUE(others.hear({CableNews::Kind::sighting, again.own()}));
  EXPECT_FALSE(again.hear({CableNews::Kind::sighting, again.own()})) << "an echo";
  EXPECT_FALSE(again.hear(before));
  EXPECT_THAT(others.unsettled(), ElementsAre(0, 1));
}

TEST(LinkState, ACableCountsWhenBothEndsSeeIt) {
  LinkState state(0, 3, 1);
  state.see({cable(0, 1), cable(0, 2)}, true);
  state.hear({CableNews::Kind::sighting, {1, 1, true, 1, {cable(0, 1), cable(1, 2)}}});
  EXPECT_FALSE(state.all_settled());
  state.hear({CableNews::Kind::sighting, {2, 1, true, 1, {cable(1, 2)}}});
  ASSERT_TRUE(state.all_settled());
  EXPECT_FALSE(state.both_ends_see_all());
  state.decide();
  EXPECT_THAT(state.decided()->cables(), ElementsAre(cable(0, 1), cable(1, 2)));
}

TEST(LinkState, NeedsTheReportOfTheOtherEnd) {
  LinkState state(0, 2, 1);
  state.see({cable(0, 1)}, true);
  EXPECT_FALSE(state.both_ends_see_all());
  state.hear({CableNews::Kind::sighting, {1, 1, true, 1, {}}});
  ASSERT_TRUE(state.all_settled());
  EXPECT_FALSE(state.both_ends_see_all());
  state.hear({CableNews::Kind::sighting, {1, 2, true, 1, {cable(0, 1)}}});
  EXPECT_TRUE(state.both_ends_see_all());
}

TEST(LinkState, OnANetworkAPairHasAsManyCablesAsAddresses) {
  const auto between = [](const std::string& a, const std::string& b) {
    return Cable{.a = 0, .b = 1, .at_a = a, .at_b = b};
  };
  // From its first address, each rank reaches both addresses of the other.
  const std::vector<Cable> seen = {between("a1", "b1"), between("a1", "b2"), between("a2", "b1")};
  LinkState state(0, 2, 1);
  state.see(seen, true);
  state.hear({CableNews::Kind::sighting, {1, 1, true, 1, seen}});
  state.decide();
  EXPECT_THAT(state.decided()->cables(), ElementsAre(between("a1", "b2"), between("a2", "b1")));
}

TEST(LinkState, DisconnectedCablesGiveNoDecision) {
  LinkState state(0, 3, 1);
  state.see({cable(0, 1)}, true);
  state.hear({CableNews::Kind::sighting, {1, 1, true, 1, {cable(0, 1)}}});
  state.hear({CableNews::Kind::sighting, {2, 1, true, 1, {}}});
  ASSERT_TRUE(state.all_settled());
  EXPECT_FALSE(state.decide());
  EXPECT_FALSE(state.decided());
  EXPECT_TRUE(state.joins(1, 0));
  EXPECT_FALSE(state.joins(1, 2));
}

TEST(LinkState, ReportsACutOnceWithItsReason) {
  LinkState state(2, 3, 1);
  CableNews cut{CableNews::Kind::cut, {}, "nothing comes along it"};
  cut.sighting.cables = {cable(0, 1)};
  EXPECT_FALSE(state.hear(cut));  // the cable has not been agreed on
  CableNews decision{CableNews::Kind::decision, {}};
  decision.ports = {1, 2, 3};
  decision.sighting.cables = {cable(0, 1), cable(1, 2)};
  state.hear(decision);
  EXPECT_TRUE(state.hear(round_trip(cut, 3)));
  EXPECT_FALSE(state.hear(cut));
  const std::vector<CutCable> found = state.take_cut();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].cable, cable(0, 1));
  EXPECT_EQ(found[0].why, "nothing comes along it");
  EXPECT_TRUE(state.take_cut().empty());
}

TEST(LinkState, ReportsTheEndOfARankOnceAfterTheAgreement) {
  LinkState state(0, 3, 5000);
  CableNews ended{CableNews::Kind::ended, {}};
  ended.sighting.rank = 2;
  EXPECT_FALSE(state.hear(ended));
  CableNews decision{CableNews::Kind::decision, {}};
  decision.sighting.cables = {cable(0, 1), cable(1, 2)};
  decision.ports = {1, 2, 3};
  ASSERT_TRUE(state.hear(decision));
  EXPECT_FALSE(state.has_ended(2));
  EXPECT_TRUE(state.hear(round_trip(ended, 3)));
  EXPECT_FALSE(state.hear(ended));
  EXPECT_TRUE(state.has_ended(2));
  EXPECT_FALSE(state.has_ended(1));
}

TEST(LinkState, RefusesASecondDecision) {
  LinkState state(2, 3, 1);
  CableNews decision{CableNews::Kind::decision, {}};
  decision.ports = {1, 2, 3};
  decision.sighting.cables = {cable(0, 1), cable(1, 2)};
  EXPECT_TRUE(state.hear(decision));
  EXPECT_FALSE(state.hear(decision));
  decision.sighting.cables.pop_back();
  EXPECT_THAT([&] { state.hear(decision); },
              ::testing::ThrowsMessage<CorruptionError>(HasSubstr("its cables differ")));
}

/// Uses random cablings, whose trunks start in random order and deliver messages after random
/// delays. All ranks must agree on exactly the existing cables.
TEST(LinkState, AllRanksAgreeOnTheSameCables) {
  std::mt19937 random(3);
  for (int round = 0; round < 100; ++round) {
    const int size = 2 + static_cast<int>(random() % 7);
    std::vector<Cable> cables;
    for (int rank = 1; rank < size; ++rank)
      cables.push_back(cable(static_cast<int>(random() % rank), rank));
    std::vector<LinkState> states;
    for (int rank = 0; rank < size; ++rank) states.emplace_back(rank, size, 1);
    std::set<std::size_t> up;
    std::map<std::pair<int, int>, std::deque<CableNews>> wires;
    const auto tell = [&](int from, const CableNews& news, int but) {
      for (const std::size_t i : up) {
        const auto& [a, b] = std::pair(cables[i].a, cables[i].b);
        if (a == from && b != but) wires[{a, b}].push_back(news);
        if (b == from && a != but) wires[{b, a}].push_back(news);
      }
    };
    const auto look = [&](int rank) {
      std::vector<Cable> seen;
      std::size_t all = 0;
      for (std::size_t i = 0; i < cables.size(); ++i) {
        if (cables[i].a != rank && cables[i].b != rank) continue;
        ++all;
        if (up.contains(i)) seen.push_back(cables[i]);
      }
      const bool settled = seen.size() == all;
      LinkState& state = states[static_cast<std::size_t>(rank)];
      if (state.decided()) return;
      if (state.see(seen, settled)) tell(rank, {CableNews::Kind::sighting, state.own()}, -1);
      if (rank != 0 || !state.all_settled()) return;
      if (state.decide()) tell(0, state.decision(), -1);
    };
    const auto decided = [](const LinkState& state) { return state.decided().has_value(); };
    for (int step = 0; step < 100000 && !std::ranges::all_of(states, decided); ++step) {
      if (up.size() < cables.size() && random() % 4 == 0) {
        std::size_t next = random() % cables.size();
        while (up.contains(next)) next = (next + 1) % cables.size();
        up.insert(next);
        for (const auto& [from, to] : {std::pair(cables[next].a, cables[next].b),
                                       std::pair(cables[next].b, cables[next].a)}) {
          const LinkState& state = states[static_cast<std::size_t>(from)];
          for (int rank = 0; rank < size; ++rank) {
            if (const Sighting* known = state.sighting_of(rank))
              wires[{from, to}].push_back({CableNews::Kind::sighting, *known});
          }
          if (state.decided()) wires[{from, to}].push_back(state.decision());
        }
      }
      look(static_cast<int>(random() % static_cast<unsigned>(size)));
      if (wires.empty()) continue;
      auto wire = std::next(wires.begin(), static_cast<std::ptrdiff_t>(random() % wires.size()));
      if (wire->second.empty()) continue;
      const CableNews news = round_trip(wire->second.front(), size);
      wire->second.pop_front();
      const auto [from, to] = wire->first;
      if (states[static_cast<std::size_t>(to)].hear(news)) tell(to, news, from);
    }
    const Cabling expected(size, cables);
    for (const LinkState& state : states) {
      ASSERT_TRUE(state.decided()) << round;
      EXPECT_EQ(state.decided()->cables(), expected.cables());
      // The decision contains the port of every rank, because it may arrive before the sighting of
      // that rank.
      for (int rank = 0; rank < size; ++rank) EXPECT_EQ(state.port_of(rank), 1);
    }
  }
}

}  // namespace
}  // namespace mccl::rendezvous
