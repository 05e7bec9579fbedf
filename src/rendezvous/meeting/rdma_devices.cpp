#include "rendezvous/meeting/rdma_devices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/cores.h"
#include "mccl/error.h"
#include "mccl/meeting.h"
#include "transport/rdma/verbs/verbs.h"

namespace mccl::rendezvous {

using transport::rdma::Card;
using transport::rdma::RdmaTransport;
using transport::rdma::Survey;

namespace {

/// Time for which a peer may leave a probe of an unreliable RDMA connection unanswered, in liveness
/// intervals. It exceeds 1, so that the engine's liveness check reports a silent peer first.
constexpr double kAnswerAfterSilences = 1.5;

/// Appends a cable for each pair of devices that joins the two ranks. The device names take the
/// place of the addresses of the cable's ends.
void add_cables(const std::vector<Card>& cards, WorldRank a, WorldRank b,
                std::vector<Cable>& cables) {
  const Card& of_a = cards[a.index()];
  const Card& of_b = cards[b.index()];
  try {
    const auto at_a = common_rails(of_a, a, of_b, b);
    const auto at_b = common_rails(of_b, b, of_a, a);
    for (std::size_t rail = 0; rail < std::min(at_a.size(), at_b.size()); ++rail) {
      cables.push_back({.a = a.number(),
                        .b = b.number(),
                        .at_a = fmt::format("{} on {}", of_a.devices[at_a[rail]].name, of_a.host),
                        .at_b = fmt::format("{} on {}", of_b.devices[at_b[rail]].name, of_b.host)});
    }
  } catch (const Error&) {
    // No devices join the two ranks, so no cable is added; make_rdma() reports the reason.
  }
}

[[noreturn]] void refuse(const RdmaOptions& o, WorldRank rank, WorldRank peer,
                         const std::string& why) {
  throw PeerError(
      fmt::format("MCCL_TRANSPORT is rdma, but rank {} cannot reach rank {} over RDMA: {}; set "
                  "MCCL_TRANSPORT to auto to use the transports that work{}",
                  rank, peer, why, transport::rdma::picture_of(o.cards)));
}

/// Throws PeerError if two ranks with a cable cannot use RDMA, or if a rank has no cable. Every
/// rank checks all ranks, so that all fail with the same error.
void require_everywhere(const RdmaOptions& o) {
  const WorldRank end(static_cast<int>(o.cards.size()));
  for (WorldRank rank(0); rank < end; ++rank) {
    bool reaches_any = end.number() == 1;
    for (WorldRank peer(0); peer < end; ++peer) {
      const Card& here = o.cards[rank.index()];
      const Card& there = o.cards[peer.index()];
      if (peer == rank || is_uncabled(here, rank, there, peer)) continue;
      try {
        common_rails(here, rank, there, peer);
        common_service(here, there);
      } catch (const Error& error) {
        refuse(o, rank, peer, error.what());
      }
      reaches_any = true;
    }
    if (!reaches_any) {
      refuse(o, rank, WorldRank(rank.number() == 0 ? 1 : 0),
             fmt::format("the RDMA device table (MCCL_RDMA_DEVICE) names no device that joins rank "
                         "{} to another rank",
                         rank));
    }
  }
}

}  // namespace

Survey find_rdma(const Config& config, WorldRank rank, int size, bool one_host,
                 std::shared_ptr<transport::rdma::Verbs> verbs) {
  namespace rdma = transport::rdma;
  if (config.transport != "rdma" && config.transport != "auto") {
    return {rdma::card_without(fmt::format("the rank's MCCL_TRANSPORT is {}", config.transport)),
            false,
            {}};
  }
  if (meets_by_mpi(config))
    return {rdma::card_without("the rank's MCCL_BACKEND is mpi"), false, {}};
  if (one_host && config.transport == "auto")
    return {rdma::card_without("the ranks of one host share memory"), false, {}};
  std::string why;
  if (!verbs) verbs = rdma::load_verbs(why);
  Survey found = rdma::survey(config, rank, size, verbs, why);
  if (config.encryption != "on" || !found.has_devices) return found;
  // Encryption rules out RDMA even if MCCL_TRANSPORT is rdma; the job then fails with this reason.
  return {
      rdma::card_without("RDMA does not encrypt, and the rank's MCCL_ENCRYPTION is on"), true, {}};
}

std::optional<Cabling> cabling_of(const Config& config, const std::vector<int>& nodes,
                                  const std::vector<Card>& cards) {
  if (config.rdma_uncabled != "relay" || !nodes.empty()) return std::nullopt;
  const auto size = static_cast<int>(cards.size());
  bool some_are_uncabled = false;
  std::vector<Cable> cables;
  for (WorldRank a(0); a.number() < size; ++a) {
    for (WorldRank b(a.number() + 1); b.number() < size; ++b) {
      some_are_uncabled |= is_uncabled(cards[a.index()], a, cards[b.index()], b);
      add_cables(cards, a, b, cables);
    }
  }
  if (!some_are_uncabled) return std::nullopt;
  Cabling cabling(size, std::move(cables));
  return cabling.parts().size() == 1 ? std::optional(std::move(cabling)) : std::nullopt;
}

std::unique_ptr<RdmaTransport> make_rdma(const RdmaOptions& o, Survey found) {
  const bool has_devices = found.has_devices;
  const std::string why = found.card.why;
  const bool must = o.config.transport == "rdma";
  if (must) require_everywhere(o);
  auto made = std::make_unique<RdmaTransport>(
      WorldRank(o.rank), std::move(found), o.cards, o.config.rdma_gid,
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(
          o.config.liveness_interval * patience_of(o.ranks_per_core) * kAnswerAfterSilences)));
  const auto own = static_cast<std::size_t>(o.rank);
  if (!must && !why.empty()) {
    if (has_devices) {
      o.log.warn("the RDMA devices of this host are not used: {}", why);
    } else {
      o.log.debug("no RDMA on this host: {}", why);
    }
  }
  for (const auto& device : o.cards[own].devices) {
    if (must || !why.empty() || device.why.empty()) continue;
    // Without the warning, the device would go unnoticed.
    o.log.warn(
        "the RDMA device {} of this host is not used: {} (other RDMA devices of this host are "
        "used)",
        device.name, device.why);
  }
  bool reaches_any = false;
  std::vector<WorldRank> uncabled;
  for (WorldRank peer(0); peer.index() < o.cards.size(); ++peer) {
    if (peer.number() == o.rank) continue;
    if (made->reaches(peer)) {
      reaches_any = true;
    } else if (made->uncabled(peer)) {
      uncabled.push_back(peer);
    } else if (why.empty() && o.endpoints[peer.index()].host != o.endpoints[own].host) {
      o.log.warn("no RDMA to rank {}: {}; tcp is used", peer, made->missing(peer));
    }
  }
  if (reaches_any && !uncabled.empty()) {
    o.log.info(
        "no RDMA cable leads to these ranks: {}; messages to them use tcp, and collectives {}",
        fmt::join(uncabled, ", "),
        o.config.rdma_uncabled == "relay" ? "are relayed along the cables" : "also use tcp");
  }
  return reaches_any ? std::move(made) : nullptr;
}

}  // namespace mccl::rendezvous
