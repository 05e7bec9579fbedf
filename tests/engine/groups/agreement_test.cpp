#include "engine/groups/agreement.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <utility>

#include "mccl/error.h"

namespace mccl::engine {
namespace {

using enum Standing;

Standings standings(std::vector<Standing> each) { return Standings(std::move(each)); }

TEST(MayGoOn, NeedsAMajorityOfTheRanksThatMayLive) {
  EXPECT_TRUE(may_go_on(standings({present, present, silent})));
  EXPECT_FALSE(may_go_on(standings({present, silent, silent})));
  EXPECT_TRUE(may_go_on(standings({present, ended, ended, ended})));
}

TEST(MayGoOn, OfTwoHalvesPrefersTheLowestRankThatMayLive) {
  EXPECT_TRUE(may_go_on(standings({present, silent})));
  EXPECT_FALSE(may_go_on(standings({silent, present})));
  EXPECT_TRUE(may_go_on(standings({ended, present, silent})));
}

/// The members of one group. Votes between two members arrive in order; the test decides when.
class Members {
 public:
  explicit Members(std::size_t count) : count_(count), alive_(count, true) {
    for (std::size_t i = 0; i < count; ++i) {
      const GroupRank self(static_cast<int>(i));
      members_.push_back(
          std::make_unique<Agreement>(self, count, [this, self](GroupRank to, const Vote& vote) {
            if (sends_left_ == 0) return;
            if (sends_left_ > 0) --sends_left_;
            if (linked(self, to)) in_flight_[{self.number(), to.number()}].push_back(vote);
          }));
    }
  }

  Agreement& operator[](int member) { return *members_[static_cast<std::size_t>(member)]; }
  std::size_t count() const { return count_; }
  bool alive(int member) const { return alive_[static_cast<std::size_t>(member)]; }

  /// Delivers one vote. `choose` picks the pair of members by index. Returns false if no vote is in
  /// flight.
  template <typename Choose>
  bool deliver_one(Choose choose) {
    std::vector<std::pair<int, int>> ways;
    for (const auto& [way, votes] : in_flight_) {
      if (!votes.empty() && alive(way.second)) ways.push_back(way);
    }
    if (ways.empty()) return false;
    const auto [from, to] = ways[choose(ways.size())];
    auto& votes = in_flight_[{from, to}];
    const Vote vote = std::move(votes.front());
    votes.pop_front();
    (*this)[to].hear(GroupRank(from), vote);
    return true;
  }
  void deliver_all() {
    while (deliver_one([](std::size_t) { return 0; })) {
    }
  }

  /// Ends a member's process. Its votes in flight still arrive before the others learn of its end.
  void kill(int member) { alive_[static_cast<std::size_t>(member)] = false; }
  /// Delivers all votes of `dead` to `member`, which then learns that `dead` has ended.
  void learn(int member, int dead) {
    auto& votes = in_flight_[{dead, member}];
    for (; !votes.empty(); votes.pop_front()) (*this)[member].hear(GroupRank(dead), votes.front());
    (*this)[member].lose(GroupRank(dead), ended);
  }
  /// Separates two members: the votes between them are lost, and each learns that it cannot reach
  /// the other.
  void cut(int a, int b) {
    cut_.insert({std::min(a, b), std::max(a, b)});
    in_flight_.erase({a, b});
    in_flight_.erase({b, a});
    (*this)[a].lose(GroupRank(b), silent);
    (*this)[b].lose(GroupRank(a), silent);
  }
  /// True if all members that the decision calls present are alive and can reach each other.
  bool work_together(const Standings& decision) const {
    for (GroupRank a(0); a < decision.end_rank(); ++a) {
      for (GroupRank b(0); b < decision.end_rank(); ++b) {
        if (decision[a] != Standing::present || decision[b] != Standing::present) continue;
        if (!alive(a.number()) || !linked(a, b)) return false;
      }
    }
    return true;
  }
  /// Simulates a death in the middle of an announcement: only `sends` more votes are sent.
  void limit_sends(int sends) { sends_left_ = sends; }

 private:
  bool linked(GroupRank a, GroupRank b) const {
    return !cut_.contains({std::min(a.number(), b.number()), std::max(a.number(), b.number())});
  }

  const std::size_t count_;
  std::vector<bool> alive_;
  std::vector<std::unique_ptr<Agreement>> members_;
  std::map<std::pair<int, int>, std::deque<Vote>> in_flight_;
  std::set<std::pair<int, int>> cut_;
  int sends_left_ = -1;
};

TEST(Agreement, OfAHealthyGroupKeepsAllMembers) {
  Members members(3);
  for (int i = 0; i < 3; ++i) members[i].enter();
  members.deliver_all();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(members[i].decision());
    EXPECT_EQ(std::ranges::count(*members[i].decision(), present), 3);
  }
}

TEST(Agreement, WaitsForEveryMemberThatMayLive) {
  Members members(3);
  members[0].enter();
  members[1].enter();
  members.deliver_all();
  EXPECT_FALSE(members[0].decision());
  EXPECT_EQ(members[0].missing(), std::vector{GroupRank(2)});
  members[2].enter();
  members.deliver_all();
  EXPECT_TRUE(members[0].decision());
  EXPECT_TRUE(members[2].decision());
}

TEST(Agreement, OfOneMemberNeedsNoVotes) {
  Members members(2);
  members.kill(1);
  members.learn(0, 1);
  members[0].enter();
  ASSERT_TRUE(members[0].decision());
  EXPECT_EQ((*members[0].decision())[GroupRank(1)], ended);
}

TEST(Agreement, HasAnotherRoundAfterEachDeath) {
  Members members(3);
  for (int i = 0; i < 3; ++i) members[i].enter();
  members.deliver_all();
  members.kill(2);
  for (int i = 0; i < 2; ++i) {
    members[i].enter();
    EXPECT_EQ(members[i].round(), 2u);
    EXPECT_FALSE(members[i].decision());
    members.learn(i, 2);
  }
  members.deliver_all();
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(members[i].decision());
    EXPECT_EQ((*members[i].decision())[GroupRank(2)], ended);
  }
}

TEST(Agreement, ExcludesAMemberThatSomeRanksCannotReach) {
  Members members(5);
  members.cut(1, 4);
  for (int i = 0; i < 5; ++i) members[i].enter();
  members.deliver_all();
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(members[i].decision()) << i;
    const Standings& decision = *members[i].decision();
    EXPECT_TRUE(decision[GroupRank(1)] == silent || decision[GroupRank(4)] == silent) << i;
    if (decision[GroupRank(i)] != present) continue;
    EXPECT_TRUE(std::ranges::equal(decision, *members[0].decision())) << i;
    EXPECT_TRUE(may_go_on(decision));
  }
}

TEST(Agreement, RefusesMalformedVotes) {
  Members members(2);
  const Vote valid{1, false, Standings(2)};
  for (const Vote& bad : {Vote{0, false, Standings(2)}, Vote{2, false, Standings(2)},
                          Vote{1, false, Standings(3)}, Vote{1, true, {}}})
    EXPECT_THROW(members[0].hear(GroupRank(1), bad), CorruptionError);
  EXPECT_NO_THROW(members[0].hear(GroupRank(1), valid));
}

/// Each decision of another round would stay in memory.
TEST(Agreement, RefusesDecisionsOfRoundsThatTheMemberHasNotEntered) {
  Members members(2);
  EXPECT_THROW(members[0].hear(GroupRank(1), {1, true, Standings(2)}), CorruptionError);
  Standings without_rank_0(2);
  without_rank_0[GroupRank(0)] = Standing::silent;
  EXPECT_NO_THROW(members[0].hear(GroupRank(1), {1, true, without_rank_0}));
}

/// Members die at random, also in the middle of an announcement; links are cut and votes delayed at
/// random. Living members that include each other must not decide differently. All members that may
/// go on must belong to one group. Every member must decide once all living members take part.
TEST(Agreement, IsTheSameForAllInEveryOrderOfEvents) {
  for (unsigned seed = 0; seed < 20'000; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random()) % n; };
    Members members(2 + below(5));
    const int count = static_cast<int>(members.count());
    std::vector<std::pair<int, int>> to_learn;  // member, dead
    std::vector<int> to_enter;
    for (int i = 0; i < count; ++i) to_enter.push_back(i);
    int deaths = static_cast<int>(below(members.count()));
    int cuts = static_cast<int>(below(3));
    const auto die = [&](int member) {
      members.kill(member);
      std::erase(to_enter, member);
      for (int i = 0; i < count; ++i) {
        if (members.alive(i)) to_learn.emplace_back(i, member);
      }
    };
    int steps = 0;
    for (bool moves = true; moves;) {
      ASSERT_LT(++steps, 100'000) << "seed " << seed << ": no end of votes";
      moves = false;
      switch (below(5)) {
        case 0:
          if (to_enter.empty()) break;
          {
            const auto at = to_enter.begin() + static_cast<std::ptrdiff_t>(below(to_enter.size()));
            const int member = *at;
            to_enter.erase(at);
            const bool dies = deaths > 0 && below(4) == 0;
            if (dies) members.limit_sends(static_cast<int>(below(members.count())));
            members[member].enter();
            members.limit_sends(-1);
            if (dies) die(member), --deaths;
          }
          break;
        case 1:
          if (to_learn.empty()) break;
          {
            const auto at = to_learn.begin() + static_cast<std::ptrdiff_t>(below(to_learn.size()));
            const auto [member, dead] = *at;
            to_learn.erase(at);
            if (members.alive(member)) members.learn(member, dead);
          }
          break;
        case 2:
          if (deaths == 0 || below(8) != 0) break;
          {
            const int member = static_cast<int>(below(members.count()));
            if (members.alive(member)) die(member), --deaths;
          }
          break;
        case 3:
          if (cuts == 0 || below(8) != 0) break;
          {
            const int a = static_cast<int>(below(members.count()));
            const int b = static_cast<int>(below(members.count()));
            if (a != b && members.alive(a) && members.alive(b)) members.cut(a, b), --cuts;
          }
          break;
        default:
          members.deliver_one(below);
      }
      moves = !to_enter.empty() || !to_learn.empty() || members.deliver_one(below);
    }
    std::optional<std::vector<Standing>> group;
    for (int i = 0; i < count; ++i) {
      if (!members.alive(i)) continue;
      ASSERT_TRUE(members[i].decision()) << "seed " << seed << ", member " << i;
      const Standings& decision = *members[i].decision();
      if (decision[GroupRank(i)] != present || !may_go_on(decision)) continue;
      std::vector<Standing> members_of(decision.begin(), decision.end());
      // Members may die or lose each other after the decision, which then needs another round.
      if (!members.work_together(decision)) continue;
      if (!group) group = members_of;
      ASSERT_EQ(members_of, *group) << "seed " << seed << ", member " << i;
    }
  }
}

}  // namespace
}  // namespace mccl::engine
