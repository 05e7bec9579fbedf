// The RDMA part of a meeting (meeting.h): finds this rank's devices, and makes the RDMA transport
// once the devices of all ranks are known.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/cabling.h"
#include "base/log.h"
#include "mccl/config.h"
#include "rendezvous/connections/candidates.h"
#include "transport/rdma/survey/survey.h"
#include "transport/rdma/transport.h"

namespace mccl::rendezvous {

/// Surveys the RDMA devices of this host for `rank` of a job of `size` ranks. `one_host` is true if
/// all ranks are on this host. If `verbs` is null, uses the RDMA library of this host.
transport::rdma::Survey find_rdma(const Config& config, WorldRank rank, int size, bool one_host,
                                  std::shared_ptr<transport::rdma::Verbs> verbs);

/// Returns the RDMA cables if collectives must be restricted to these cables. Empty if every pair
/// of ranks has a cable, if the cables do not join all ranks, if ranks share memory (which gives
/// them other paths), or if MCCL_RDMA_UNCABLED is not relay. All ranks get the same result. `nodes`
/// is the result of agree_on_nodes().
std::optional<Cabling> cabling_of(const Config& config, const std::vector<int>& nodes,
                                  const std::vector<transport::rdma::Card>& cards);

struct RdmaOptions {
  int rank = 0;
  const Config& config;
  const Log& log;
  const std::vector<Endpoint>& endpoints;  ///< Indexed by rank.
  const std::vector<transport::rdma::Card>& cards;
  double ranks_per_core = 1;  ///< Maximum number of ranks that share one core of this host.
};

/// Returns null if no peer is reached by RDMA. Logs a warning for each peer on another host that
/// lacks something RDMA needs, and a single warning if this host has RDMA devices but cannot use
/// them. With MCCL_TRANSPORT=rdma, throws PeerError instead, and the message names what is missing.
std::unique_ptr<transport::rdma::RdmaTransport> make_rdma(const RdmaOptions& options,
                                                          transport::rdma::Survey found);

}  // namespace mccl::rendezvous
