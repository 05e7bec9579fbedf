// The RDMA part of a meeting: whether this rank looks for devices, and the transport that results
// from the devices of all ranks.
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

/// Surveys the devices for `rank` of a job of `size` ranks. `one_host`: all ranks are on this host.
/// If `verbs` is null, the verbs of this machine are used.
transport::rdma::Survey find_rdma(const Config& config, WorldRank rank, int size, bool one_host,
                                  std::shared_ptr<transport::rdma::Verbs> verbs);

/// Returns the ranks that the device tables join, so that collectives can keep to the cables. Empty
/// unless some pairs have no cable and the cables still join all ranks. Also empty if ranks share
/// memory, as then they have other paths than cables. All ranks get the same result. `nodes` is the
/// result of agree_on_nodes().
std::optional<Cabling> cabling_of(const Config& config, const std::vector<int>& nodes,
                                  const std::vector<transport::rdma::Card>& cards);

struct RdmaOptions {
  int rank = 0;
  const Config& config;
  const Log& log;
  const std::string& host;                 ///< Host of this rank, in the form of Endpoint::host.
  const std::vector<Endpoint>& endpoints;  ///< Indexed by rank.
  const std::vector<transport::rdma::Card>& cards;
  double ranks_per_core = 1;  ///< Ranks per core on this host.
};

/// Returns null if no peer is reached by RDMA. If a peer is not reached because something is
/// missing, logs a WARN; with MCCL_TRANSPORT=rdma it throws PeerError with a picture of what is
/// missing.
std::unique_ptr<transport::rdma::RdmaTransport> make_rdma(const RdmaOptions& options,
                                                          transport::rdma::Survey found);

}  // namespace mccl::rendezvous
