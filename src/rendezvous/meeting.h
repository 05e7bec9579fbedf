// How the ranks of a job come together, from a store to connections of all with all:
//
// 1. They find out who belongs to this start of the job (incarnation.h). What they prove to each
//    other from then on they prove with a key that is made of the job's key and the start's name.
// 2. They say which host they are on and which cores they may use; so each knows whether it has to
//    listen to other hosts, and how many files it will open.
// 3. They listen, and say where, and which RDMA devices they have.
// 4. The higher rank of a pair dials the lower one, for the pair's control connection.
// 5. Those that can share memory do (neighbours.h).
//
// The last word is rank 0's in every stage (exchange.h): when it comes, all ranks have got so far.
// A rank that fails says why, and then all fail; one that dies is noticed by the store's server, at
// its control connections, or because its address refuses.
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
  std::function<void()> on_refused;  ///< Called for every stranger dropped.
  int bell_pipe = -1;                ///< What neighbours ring.
  std::shared_ptr<Wiring> wiring;    ///< Where not all ranks reach each other; else null.
  std::shared_ptr<transport::rdma::Verbs> verbs;  ///< Null: this machine's.
  bool has_gpus = false;                          ///< This rank; for Met::all_have_gpus.
  /// The key of the job, through a store of this start's own.
  std::function<std::string(std::shared_ptr<Store> store, Clock::time_point deadline)> agree_on_key;
};

/// What a rank has when all have met.
struct Met {
  std::shared_ptr<Incarnation> store;
  std::vector<std::unique_ptr<transport::Link>> controls;  ///< By rank; null for this one.
  /// What links can be made through; of two that reach a peer, the better one first.
  std::vector<std::unique_ptr<transport::Transport>> transports;
  std::shared_ptr<const node::SharedMemory> shared_memory;
  double ranks_per_core = 1;  ///< Of this host, where they are most crowded.
  /// The ranks that no cable leads to from here, with the one that connections to each go through.
  std::map<int, int> relayed;
  /// Which ranks cables of RDMA devices join, where collectives are to keep to them.
  std::optional<Cabling> rdma_cabling;
  bool uses_rdma = false;
  bool all_have_gpus = false;
};

/// Throws InvalidArgument, TimeoutError, PeerError, MismatchError.
Met meet(const MeetingOptions& options);

}  // namespace mccl::rendezvous
