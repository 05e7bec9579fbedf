// Links over RDMA devices. The end that dials offers a queue pair, the other connects one of its
// own to it and answers, and the first connects too. Then the two greet each other through the
// devices: only a path on which that has come through becomes a link.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/rdma/card.h"
#include "transport/rdma/offer.h"
#include "transport/rdma/survey.h"
#include "transport/transport.h"

namespace mccl::transport::rdma {

class RdmaTransport final : public Transport {
 public:
  /// `cards` are those of all ranks, in their order. `gid` is the setting. `answer_patience`: as
  /// Pair's.
  RdmaTransport(WorldRank rank, Survey survey, const std::vector<Card>& cards, std::string gid,
                Clock::duration answer_patience = Pair::kAnswerPatience);

  std::string_view name() const override { return "rdma"; }
  bool reaches(WorldRank peer) const override { return !ways_[peer.index()].rails.empty(); }
  /// Why not.
  const std::string& missing(WorldRank peer) const { return ways_[peer.index()].missing; }
  /// By the table of devices no cable joins the two, so that nothing is amiss.
  bool uncabled(WorldRank peer) const { return ways_[peer.index()].uncabled; }
  std::string describe(WorldRank peer) const override;
  int rails(WorldRank peer) const override;

  Making dial(WorldRank peer, const LinkKey& key, Clock::time_point deadline) override;
  Making hear(WorldRank peer, const LinkKey& key, std::span<const std::byte> told) override;
  void cancel(WorldRank peer, const LinkKey& key) override;

  void progress(std::vector<LinkEvent>& events) override;
  void watch(std::vector<pollfd>& descriptors) const override;
  Clock::time_point next_deadline() const override;
  bool arm() override;
  void disarm() override;
  void abandon() noexcept override;

 private:
  /// To a peer.
  struct Way {
    std::vector<std::size_t> rails;  ///< Places of stations.
    Service service = Service::rc;
    std::string missing;
    bool uncabled = false;
  };
  /// A link in the making.
  struct Begun {
    std::shared_ptr<Station> station;
    PairAtStation pair;
    std::vector<Gid> offered;
    bool dialled = false;
    bool connected = false;
    std::string path;
    Clock::time_point deadline;
    bool in_doubt = false;  ///< The other end may take it for open.
  };
  using Place = std::pair<WorldRank, LinkKey>;

  Way way_to(WorldRank peer, const Card& card) const;
  Begun begin(WorldRank peer, const LinkKey& key, Clock::time_point deadline);
  Making take_offer(WorldRank peer, const LinkKey& key, const Offer& offer);
  void take_answer(WorldRank peer, Begun& begun, const Offer& answer);
  static Offer offer_of(const Begun& begun);
  static void connect(Begun& begun, const Offer& far, const Gid& own, const Gid& theirs);
  bool settle(const Place& place, Begun& begun, Clock::time_point now,
              std::vector<LinkEvent>& events);

  const WorldRank rank_;
  const Survey survey_;
  std::vector<Station*> stations_;  ///< Of the survey's, those that can be used.
  const std::string gid_;
  const Clock::duration answer_patience_;
  std::vector<Way> ways_;  ///< By rank.
  std::map<Place, Begun> begun_;
};

}  // namespace mccl::transport::rdma
