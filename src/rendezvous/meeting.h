// The meeting of the ranks of a job: from a store to connections between all pairs.
//
// 1. The ranks find out which processes belong to this start of the job (incarnation.h). All later
//    proofs use a key derived from the job's key and the start's name.
// 2. They publish their host and the cores that they may use. So each rank knows whether it must
//    listen to other hosts, and how many files it will open.
// 3. They listen, and publish their addresses and RDMA devices.
// 4. The higher rank of a pair dials the lower one, for the pair's control connection.
// 5. Those that can share memory do (neighbours.h).
//
// Rank 0 ends every stage (exchange.h): its text means that all ranks have completed the stage. If
// a rank fails, it publishes the reason, and all ranks fail. The death of a rank is detected by the
// store's server, at its control connections, or because its address refuses connections.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/cabling.h"
#include "base/log.h"
#include "mccl/config.h"
#include "mccl/store.h"
#include "node/neighbour.h"
#include "rendezvous/incarnation.h"
#include "transport/rdma/verbs.h"
#include "transport/transport.h"

namespace mccl::rendezvous {

class Wiring;

struct MeetingOptions {
  int rank = 0;
  int size = 1;
  std::shared_ptr<Store> store;
  Config config;
  Log log;
  std::function<void()> on_refused;  ///< Called for every refused connection.
  int bell_pipe = -1;                ///< Descriptor by which neighbours wake this rank.
  std::shared_ptr<Wiring> wiring;    ///< Set if not all ranks reach each other; else null.
  std::shared_ptr<transport::rdma::Verbs> verbs;  ///< If null, the verbs of this machine are used.
  bool has_gpus = false;                          ///< True if this rank has GPUs.
  /// Returns the job's key, using a store that only this start sees.
  std::function<std::string(std::shared_ptr<Store> store, Clock::time_point deadline)> agree_on_key;
};

/// Result of the meeting for one rank.
struct Met {
  std::shared_ptr<Incarnation> store;
  std::vector<std::unique_ptr<transport::Link>> controls;  ///< Indexed by rank; null for this one.
  /// Transports for links, better ones first.
  std::vector<std::unique_ptr<transport::Transport>> transports;
  std::shared_ptr<const node::SharedMemory> shared_memory;
  double ranks_per_core = 1;  ///< Maximum number of ranks that share one core of this host.
  /// Ranks without a direct cable to this rank, each with the relay that connections to it go
  /// through.
  std::map<int, int> relayed;
  /// Ranks that RDMA devices join by cables, if collectives must be restricted to those cables.
  std::optional<Cabling> rdma_cabling;
  bool uses_rdma = false;
  bool all_have_gpus = false;
};

/// Throws InvalidArgument, TimeoutError, PeerError, MismatchError.
Met meet(const MeetingOptions& options);

}  // namespace mccl::rendezvous
