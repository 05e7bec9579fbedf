// The meeting of the ranks of a job. It starts with a store and ends with a connection between
// every two ranks.
//
// 1. The ranks find out which processes belong to this run of the job (incarnation.h). All later
//    proofs use a key derived from the job's key and the name of the run.
// 2. They agree on a key if none is configured. All that they publish then carries a proof of the
//    key.
// 3. They publish their host and the cores that they may use. Each rank then knows whether it must
//    accept connections from other hosts, and how many descriptors it needs.
// 4. They listen, and publish their addresses and RDMA devices.
// 5. The higher rank of a pair dials the lower one, for the pair's control connection.
// 6. Ranks that can share memory map each other's memory (neighbours.h).
//
// Rank 0 ends every stage by publishing a text. A rank that has read this text knows that all ranks
// have completed the stage (exchange.h). If a rank fails, it publishes the reason, and all ranks
// fail. A dead process is detected by the store's server, by the end of its control connections, or
// because its address refuses connections.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/cabling.h"
#include "base/log.h"
#include "mccl/config.h"
#include "mccl/store.h"
#include "node/neighbour.h"
#include "rendezvous/store/incarnation.h"
#include "transport/rdma/verbs/verbs.h"
#include "transport/transport.h"

namespace mccl::rendezvous {

class Wiring;

struct MeetingOptions {
  int rank = 0;
  int size = 1;
  std::shared_ptr<Store> store;
  Config config;
  Log log;
  std::function<void()> on_refused;   ///< Called for every refused connection.
  std::function<void()> on_repaired;  ///< Called for every broken connection that was replaced.
  int bell_pipe = -1;                 ///< Descriptor through which neighbours wake this rank.
  std::shared_ptr<Wiring> wiring;     ///< Null if all ranks reach each other directly.
  std::shared_ptr<transport::rdma::Verbs> verbs;  ///< If null, this host's RDMA library is used.
  bool has_gpus = false;
  /// Returns the job's key, on which the ranks agree through `store`. Entries of this `store` are
  /// visible only to this run of the job.
  std::function<SecretBytes(std::shared_ptr<Store> store, Clock::time_point deadline)> agree_on_key;
};

/// Result of the meeting for one rank.
struct Met {
  std::shared_ptr<Incarnation> store;
  /// Control links to the other ranks, indexed by rank; null for this rank.
  std::vector<std::unique_ptr<transport::Link>> controls;
  /// Transports for links, in order of preference.
  std::vector<std::unique_ptr<transport::Transport>> transports;
  std::shared_ptr<const node::SharedMemory> shared_memory;
  double ranks_per_core = 1;   ///< Maximum number of ranks that share one core of this host.
  std::map<int, int> relayed;  ///< First relay on the path to each rank without a direct cable.
  /// The RDMA cables between ranks; set only if collectives must be restricted to them.
  std::optional<Cabling> rdma_cabling;
  bool uses_rdma = false;
  bool all_have_gpus = false;
};

/// Blocks until this rank is connected to all others. Throws an Error if that fails: for example,
/// PeerError if another rank has failed, or TimeoutError after MCCL_CONNECT_TIMEOUT.
Met meet(const MeetingOptions& options);

}  // namespace mccl::rendezvous
