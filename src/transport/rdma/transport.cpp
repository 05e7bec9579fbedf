#include "transport/rdma/transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "transport/rdma/link.h"

namespace mccl::transport::rdma {
namespace {

/// Time after which the dialing end gives up a connected path on which nothing arrives.
constexpr std::chrono::seconds kGreeting{3};
/// Time after which the end that did not dial discards a pair that is not open. Longer than
/// kGreeting, so that the dialing end reports the failure first.
constexpr std::chrono::seconds kTidying{6};
/// Interval between checks of links that are being made, for devices without notifications.
constexpr std::chrono::milliseconds kLook{20};

// The numbers of queue pairs and packets have 24 bits.
constexpr std::uint32_t kMostNumber = 0xffffff;

struct GidOnWire {
  std::uint32_t index = 0;
  std::uint32_t type = 0;
  GidBytes bytes{};
};
static_assert(sizeof(GidOnWire) == 24);
static_assert(sizeof(OfferHeader) + kMostOffered * sizeof(GidOnWire) <= kMostBlobBytes);

bool is_possible(const OfferHeader& offer, std::size_t bytes) {
  return offer.magic == OfferHeader::kMagic && offer.is_answer <= 1 &&
         offer.service <= Service::rc && offer.layer <= LinkLayer::ethernet &&
         offer.queue_pair <= kMostNumber && offer.first_packet <= kMostNumber &&
         rdma::is_possible(offer.shape) && offer.mtu_bytes >= 256 && offer.mtu_bytes <= 4096 &&
         offer.gid_count >= 1 && offer.gid_count <= kMostOffered &&
         bytes == sizeof(OfferHeader) + offer.gid_count * sizeof(GidOnWire);
}

}  // namespace

RdmaTransport::RdmaTransport(WorldRank rank, Survey survey, const std::vector<Card>& cards,
                             std::string gid, Clock::duration answer_patience)
    : rank_(rank),
      survey_(std::move(survey)),
      gid_(std::move(gid)),
      answer_patience_(answer_patience) {
  for (const Card& card : cards)
    ways_.push_back(way_to(WorldRank(static_cast<int>(ways_.size())), card));
  for (const auto& station : survey_.stations) {
    if (station) stations_.push_back(station.get());
  }
}

RdmaTransport::Way RdmaTransport::way_to(WorldRank peer, const Card& card) const {
  Way way;
  if (peer == rank_) return way;
  way.uncabled = is_uncabled(survey_.card, rank_, card, peer);
  try {
    way.rails = common_rails(survey_.card, rank_, card, peer);
    way.service = common_service(survey_.card, card);
  } catch (const Error& error) {
    way.missing = error.what();
  }
  return way;
}

int RdmaTransport::rails(WorldRank peer) const {
  return static_cast<int>(ways_[peer.index()].rails.size());
}

std::string RdmaTransport::describe(WorldRank peer) const {
  const Way& way = ways_[peer.index()];
  std::vector<std::string> names;
  for (const std::size_t place : way.rails) names.push_back(survey_.card.devices[place].name);
  return fmt::format("rdma, {}, {}", fmt::join(names, " and "), name_of(way.service));
}

RdmaTransport::Begun RdmaTransport::begin(WorldRank peer, const LinkKey& key,
                                          Clock::time_point deadline) {
  const Way& way = ways_[peer.index()];
  Begun begun;
  if (key.rail >= way.rails.size()) {
    throw Error(fmt::format("there is no link {} to rank {}: there are {} links, numbered from 0",
                            key.rail, peer, way.rails.size()));
  }
  begun.station = survey_.stations[way.rails[key.rail]];
  if (begun.station->device().failed()) throw Error(begun.station->device().trouble());
  begun.offered = wanted_gids(begun.station->gids(), gid_);
  if (begun.offered.empty()) {
    throw Error(fmt::format("device {} no longer has an address; check its network interface",
                            begun.station->device().name()));
  }
  begun.pair = begun.station->make_pair(way.service, {peer, key});
  begun.pair->answer_within(answer_patience_);
  begun.deadline = deadline;
  return begun;
}

Offer RdmaTransport::offer_of(const Begun& begun) {
  Offer offer;
  offer.service = begun.pair->service();
  offer.layer = begun.station->port().layer;
  offer.queue_pair = begun.pair->number();
  offer.first_packet = begun.pair->first_packet();
  offer.token = begun.pair->token();
  offer.mtu_bytes = static_cast<std::uint32_t>(begun.station->port().mtu_bytes);
  offer.lid = begun.station->port().lid;
  offer.gids = begun.offered;
  return offer;
}

Making RdmaTransport::dial(WorldRank peer, const LinkKey& key, Clock::time_point deadline) {
  Begun begun = begin(peer, key, deadline);
  begun.dialled = true;
  Making made;
  made.blob = encode(offer_of(begun));
  begun_[{peer, key}] = std::move(begun);
  return made;
}

Making RdmaTransport::hear(WorldRank peer, const LinkKey& key, std::span<const std::byte> blob) {
  const Offer offer = decode_offer(peer, blob);
  const auto found = begun_.find({peer, key});
  if (offer.is_answer == 0) {
    if (found != begun_.end())
      throw CorruptionError(fmt::format("rank {} offers an RDMA queue pair twice", peer));
    return take_offer(peer, key, offer);
  }
  if (found == begun_.end() || !found->second.dialled || found->second.connected) {
    throw CorruptionError(
        fmt::format("rank {} accepts an RDMA queue pair that was not offered", peer));
  }
  take_answer(peer, found->second, offer);
  return {};
}

Making RdmaTransport::take_offer(WorldRank peer, const LinkKey& key, const Offer& offer) {
  if (!reaches(peer))
    throw CorruptionError(
        fmt::format("rank {} offers a queue pair, but this rank cannot reach it over RDMA", peer));
  Begun begun = begin(peer, key, Clock::now() + kTidying);
  if (offer.service != begun.pair->service()) {
    throw CorruptionError(
        fmt::format("rank {} offers an RDMA queue pair of type {}, but the two ranks agreed on {}",
                    peer, name_of(offer.service), name_of(begun.pair->service())));
  }
  const LinkLayer layer = begun.station->port().layer;
  if (layer != offer.layer && layer != LinkLayer::unknown && offer.layer != LinkLayer::unknown) {
    throw Error(fmt::format(
        "the port of device {} uses {}, but the port of rank {} uses {}; name devices of the same "
        "kind on both hosts (MCCL_RDMA_DEVICE)",
        begun.station->device().name(), name_of(layer), peer, name_of(offer.layer)));
  }
  const auto chosen = choose_gids(begun.offered, offer.gids);
  if (!chosen) {
    throw Error(
        fmt::format("device {} has no GID of the same type and IP family as a GID of rank {}; "
                    "check MCCL_RDMA_GID, and the addresses of the ports of both devices",
                    begun.station->device().name(), peer));
  }
  const Gid own = begun.offered[chosen->first];
  Offer answer = offer_of(begun);
  answer.is_answer = 1;
  answer.gids = {own};
  answer.chosen = static_cast<std::uint8_t>(chosen->second);
  connect(begun, offer, own, offer.gids[chosen->second]);
  Making made;
  made.blob = encode(answer);
  begun_[{peer, key}] = std::move(begun);
  return made;
}

void RdmaTransport::take_answer(WorldRank peer, Begun& begun, const Offer& answer) {
  if (answer.service != begun.pair->service() || answer.chosen >= begun.offered.size() ||
      answer.gids.size() != 1) {
    throw CorruptionError(fmt::format(
        "rank {} chose a type (rc or uc) or an address for its RDMA queue pair that was not "
        "offered",
        peer));
  }
  connect(begun, answer, begun.offered[answer.chosen], answer.gids.front());
  begun.deadline = std::min(begun.deadline, Clock::now() + kGreeting);
}

void RdmaTransport::connect(Begun& begun, const Offer& far, const Gid& own, const Gid& theirs) {
  const Port& port = begun.station->port();
  PairRoute route;
  route.queue_pair = far.queue_pair;
  route.their_first = far.first_packet;
  route.our_first = begun.pair->first_packet();
  route.mtu_bytes = std::min(port.mtu_bytes, static_cast<int>(far.mtu_bytes));
  route.lid = far.lid;
  // Within one InfiniBand subnet, the local identifier (LID) suffices as the address.
  const bool same_subnet =
      std::equal(own.bytes.begin(), own.bytes.begin() + 8, theirs.bytes.begin());
  route.by_gid = port.layer != LinkLayer::infiniband || !same_subnet || far.lid == 0;
  route.own_gid = own.index;
  route.gid = theirs.bytes;
  begun.path = fmt::format("{} -> {}", text_of(own), text_of(theirs.bytes));
  begun.pair->connect(route, {far.token, far.shape}, begun.dialled);
  begun.connected = true;
}

void RdmaTransport::cancel(WorldRank peer, const LinkKey& key) { begun_.erase({peer, key}); }

void RdmaTransport::progress(std::vector<LinkEvent>& events) {
  const Clock::time_point now = Clock::now();
  for (Station* station : stations_) {
    station->look(now);
    if (!begun_.empty()) station->arm();
    for (const auto& [link, why] : station->take_broken())
      events.push_back({link.peer, link.key, nullptr, why, true});
  }
  for (auto each = begun_.begin(); each != begun_.end();) {
    each = settle(each->first, each->second, now, events) ? begun_.erase(each) : std::next(each);
  }
}

/// Appends an event and returns true if the link is set up or has failed. If the last message of
/// the connection set-up has not arrived, the other end may already consider the link open. This
/// function then waits up to kTidying for a report that the other end uses another transport.
/// Without such a report, it returns the link in a broken state, so that the users at both ends get
/// the error.
bool RdmaTransport::settle(const Place& place, Begun& begun, Clock::time_point now,
                           std::vector<LinkEvent>& events) {
  if (begun.connected) begun.pair->poll();
  LinkEvent event{place.first, place.second, nullptr, {}};
  const bool in_doubt = !begun.pair->is_open() && begun.pair->may_be_open_there();
  if (in_doubt && !std::exchange(begun.in_doubt, true))
    begun.deadline = std::max(begun.deadline, now + kTidying);
  if (in_doubt && now < begun.deadline) return false;
  if (in_doubt)
    begun.pair->give_up("the last message of the connection set-up was lost in transit");
  if (begun.pair->is_open() || in_doubt) {
    event.link = std::make_unique<RdmaLink>(begun.station, std::move(begun.pair), begun.path);
  } else if (!begun.pair->ended().empty()) {
    event.reason = begun.pair->ended();
  } else if (now >= begun.deadline) {
    event.reason =
        begun.connected
            ? fmt::format(
                  "no message arrives on the path {}; check that UDP port 4791 (RoCE v2) is "
                  "open in both directions, and that both addresses are in one network",
                  begun.path)
            : "the peer sent no answer to the offer of a queue pair";
  } else {
    return false;
  }
  events.push_back(std::move(event));
  return true;
}

void RdmaTransport::watch(std::vector<pollfd>& descriptors) const {
  for (const Station* station : stations_) station->watch(descriptors, !begun_.empty());
}

Clock::time_point RdmaTransport::next_deadline() const {
  Clock::time_point next = Clock::time_point::max();
  for (const Station* station : stations_) next = std::min(next, station->next_look());
  if (!begun_.empty()) next = std::min(next, Clock::now() + kLook);
  return next;
}

bool RdmaTransport::arm() {
  bool any = false;
  for (Station* station : stations_) any |= station->arm();
  return any;
}

void RdmaTransport::disarm() {
  for (Station* station : stations_) station->disarm();
}

void RdmaTransport::abandon() noexcept {
  for (Station* station : stations_) station->abandon();
}

Blob encode(const Offer& offer) {
  OfferHeader header = offer;
  header.gid_count = static_cast<std::uint16_t>(std::min(offer.gids.size(), kMostOffered));
  Blob blob(sizeof header + header.gid_count * sizeof(GidOnWire));
  std::memcpy(blob.data(), &header, sizeof header);
  for (std::size_t i = 0; i < header.gid_count; ++i) {
    const Gid& gid = offer.gids[i];
    const GidOnWire one{static_cast<std::uint32_t>(gid.index), static_cast<std::uint32_t>(gid.type),
                        gid.bytes};
    std::memcpy(blob.data() + sizeof header + i * sizeof one, &one, sizeof one);
  }
  return blob;
}

Offer decode_offer(WorldRank peer, std::span<const std::byte> blob) {
  Offer offer;
  OfferHeader& header = offer;
  if (blob.size() >= sizeof header) std::memcpy(&header, blob.data(), sizeof header);
  if (blob.size() < sizeof header || !is_possible(header, blob.size())) {
    throw CorruptionError(
        fmt::format("rank {} sent an invalid description of an RDMA queue pair, {} bytes long",
                    peer, blob.size()));
  }
  for (std::size_t i = 0; i < header.gid_count; ++i) {
    GidOnWire one;
    std::memcpy(&one, blob.data() + sizeof header + i * sizeof one, sizeof one);
    if (one.type > static_cast<std::uint32_t>(GidType::roce_v2) || one.index > 0xffff) {
      throw CorruptionError(
          fmt::format("rank {} offers an RDMA address (GID) whose type or index is invalid", peer));
    }
    offer.gids.push_back({static_cast<int>(one.index), static_cast<GidType>(one.type), one.bytes});
  }
  return offer;
}

}  // namespace mccl::transport::rdma
