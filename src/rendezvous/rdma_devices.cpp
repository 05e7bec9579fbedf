#include "rendezvous/rdma_devices.h"

#include <fmt/format.h>

#include <utility>

#include "mccl/error.h"
#include "transport/rdma/verbs_library.h"

namespace mccl::rendezvous {

using transport::rdma::RdmaTransport;
using transport::rdma::Survey;

Survey find_rdma(const Config& config, WorldRank rank, int size, bool one_host,
                 std::shared_ptr<transport::rdma::Verbs> verbs) {
  namespace rdma = transport::rdma;
  if (config.transport != "rdma" && config.transport != "auto") {
    return {
        rdma::card_without(fmt::format("MCCL_TRANSPORT is {} there", config.transport)), false, {}};
  }
  if (one_host && config.transport == "auto")
    return {rdma::card_without("the ranks of one host share memory"), false, {}};
  std::string why;
  if (!verbs) verbs = rdma::load_verbs(why);
  return rdma::survey(config, rank, size, verbs, why);
}

std::unique_ptr<RdmaTransport> make_rdma(const RdmaOptions& o, Survey found) {
  const bool has_devices = found.has_devices;
  const std::string why = found.card.why;
  auto made = std::make_unique<RdmaTransport>(WorldRank(o.rank), std::move(found), o.cards,
                                              o.config.rdma_gid);
  const bool must = o.config.transport == "rdma";
  bool any = false;
  if (!must && !why.empty()) {
    if (has_devices) {
      o.log.warn("the RDMA devices of this host are not used: {}", why);
    } else {
      o.log.debug("no RDMA on this host: {}", why);
    }
  }
  for (WorldRank peer(0); peer.number() < static_cast<int>(o.cards.size()); ++peer) {
    if (peer.number() == o.rank) continue;
    any |= made->reaches(peer);
    if (made->reaches(peer)) continue;
    if (must) {
      throw PeerError(fmt::format(
          "MCCL_TRANSPORT is rdma, but rank {} cannot reach rank {} so, since {}; set it to auto "
          "to use what there is",
          o.rank, peer, made->missing(peer)));
    }
    const bool elsewhere = o.endpoints[peer.index()].host != o.host;
    if (why.empty() && elsewhere) {
      o.log.warn("no RDMA to rank {}, since {}: tcp is used", peer, made->missing(peer));
    }
  }
  return any ? std::move(made) : nullptr;
}

}  // namespace mccl::rendezvous
