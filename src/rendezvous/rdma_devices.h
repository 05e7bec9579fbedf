// The part of a meeting that is about RDMA: whether this rank looks for devices, and what comes of
// what all ranks have found.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/cabling.h"
#include "base/log.h"
#include "mccl/config.h"
#include "rendezvous/endpoint.h"
#include "transport/rdma/survey.h"
#include "transport/rdma/transport.h"

namespace mccl::rendezvous {

/// For this rank of a job of so many. `one_host`: all ranks are on this one. `verbs`: null for this
/// machine's.
transport::rdma::Survey find_rdma(const Config& config, WorldRank rank, int size, bool one_host,
                                  std::shared_ptr<transport::rdma::Verbs> verbs);

/// Which ranks the tables of devices join, where they leave some pairs without a cable and the
/// others join all ranks, so that collectives can keep to the cables. Alike on all ranks. `nodes`:
/// as a meeting agrees on them; where ranks share memory, cables are not all there is.
std::optional<Cabling> cabling_of(const Config& config, const std::vector<int>& nodes,
                                  const std::vector<transport::rdma::Card>& cards);

struct RdmaOptions {
  int rank = 0;
  const Config& config;
  const Log& log;
  const std::string& host;                 ///< Of this rank, as endpoints have it.
  const std::vector<Endpoint>& endpoints;  ///< By rank.
  const std::vector<transport::rdma::Card>& cards;
  double ranks_per_core = 1;  ///< Of this host.
};

/// Null where no peer is reached by it. A peer that could be, but for something that is missing, is
/// told of at WARN; with MCCL_TRANSPORT=rdma it is a PeerError that draws what is missing where.
std::unique_ptr<transport::rdma::RdmaTransport> make_rdma(const RdmaOptions& options,
                                                          transport::rdma::Survey found);

}  // namespace mccl::rendezvous
