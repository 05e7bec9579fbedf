// Links over RDMA devices. The dialing end offers a queue pair. The other end connects a queue pair
// of its own to the offered queue pair, and answers. Then the dialing end connects its queue pair.
// Finally, the two ends exchange greetings through the devices; the link is made only if these
// greetings arrive.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/rank.h"
#include "transport/rdma/pair/pair.h"
#include "transport/rdma/survey/survey.h"
#include "transport/rdma/verbs/verbs.h"
#include "transport/transport.h"

namespace mccl::transport::rdma {

/// The fixed part of an Offer, as it is sent.
struct OfferHeader {
  static constexpr std::uint32_t kMagic = 0x6d726431;  // "mrd1"
  std::uint32_t magic = kMagic;
  std::uint8_t is_answer = 0;
  Service service = Service::rc;
  LinkLayer layer = LinkLayer::unknown;
  std::uint8_t chosen = 0;  ///< In an answer: index of the offered address that was chosen.
  std::uint64_t token = 0;
  std::uint32_t queue_pair = 0;
  std::uint32_t first_packet = 0;
  SlotShape shape;
  std::uint32_t mtu_bytes = 1024;
  std::uint16_t lid = 0;
  std::uint16_t gid_count = 0;  ///< Number of addresses that follow; set by encode().
};
static_assert(sizeof(OfferHeader) == 40);

/// Message that an end sends over the control connection while a link is made. The dialing end
/// offers all its addresses. The other end answers with the two addresses that it has chosen, one
/// for each end.
struct Offer : OfferHeader {
  /// Addresses of the sender; in an answer, only the chosen address. Gid::index is an index in the
  /// sender's table.
  std::vector<Gid> gids;
};

/// Maximum number of addresses in an offer.
inline constexpr std::size_t kMostOffered = 32;

Blob encode(const Offer& offer);
/// Decodes an offer that `peer` has sent. Throws CorruptionError if it is malformed.
Offer decode_offer(WorldRank peer, std::span<const std::byte> blob);

class RdmaTransport final : public Transport {
 public:
  /// `cards` holds the cards of all ranks in rank order. `gid` is the setting MCCL_RDMA_GID.
  /// `answer_patience` is passed to Pair::answer_within().
  RdmaTransport(WorldRank rank, Survey survey, const std::vector<Card>& cards, std::string gid,
                Clock::duration answer_patience = Pair::kAnswerPatience);

  std::string_view name() const override { return "rdma"; }
  bool reaches(WorldRank peer) const override { return !ways_[peer.index()].rails.empty(); }
  /// The reason why the peer cannot be reached over RDMA; empty if it can be reached.
  const std::string& missing(WorldRank peer) const { return ways_[peer.index()].missing; }
  /// True if no cable joins the two ranks according to the device tables. A missing link is then
  /// not an error.
  bool uncabled(WorldRank peer) const { return ways_[peer.index()].uncabled; }
  std::string describe(WorldRank peer) const override;
  int rails(WorldRank peer) const override;

  Making dial(WorldRank peer, const LinkKey& key, Clock::time_point deadline) override;
  Making hear(WorldRank peer, const LinkKey& key, std::span<const std::byte> blob) override;
  void cancel(WorldRank peer, const LinkKey& key) override;

  void progress(std::vector<LinkEvent>& events) override;
  void watch(std::vector<pollfd>& descriptors) const override;
  Clock::time_point next_deadline() const override;
  bool arm() override;
  void disarm() override;
  void abandon() noexcept override;

 private:
  /// The devices and the service over which this rank reaches a peer. If there are none, `missing`
  /// is the reason.
  struct Way {
    std::vector<std::size_t> rails;  ///< Indices into `survey_.stations`.
    Service service = Service::rc;
    std::string missing;
    bool uncabled = false;
  };
  /// A link that is being made.
  struct Begun {
    std::shared_ptr<Station> station;
    PairAtStation pair;
    std::vector<Gid> offered;
    bool dialled = false;
    bool connected = false;
    std::string path;
    Clock::time_point deadline;
    bool in_doubt = false;  ///< True if the other end may consider the pair open.
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
  std::vector<Station*> stations_;  ///< The usable stations of survey_.
  const std::string gid_;
  const Clock::duration answer_patience_;
  std::vector<Way> ways_;  ///< Indexed by rank.
  std::map<Place, Begun> begun_;
};

}  // namespace mccl::transport::rdma
