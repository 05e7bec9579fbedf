// Functions that find the rank and size of a process in its job, and the store through which the
// ranks find each other. Context::from_environment() calls them; a program may call them itself.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "mccl/config.h"
#include "mccl/export.h"
#include "mccl/metrics.h"
#include "mccl/store.h"

namespace mccl {

/// The rank of a process in its job, and how it connects to the other ranks, as reported by the
/// launcher.
struct Placement {
  int rank = 0;
  int size = 1;
  int local_rank = -1;  ///< Rank among the ranks of this host; -1 if unknown.
  std::string root;     ///< host:port at which rank 0 serves the store; may be empty for one rank.
  /// File descriptor of the connection to MPICH's launcher, used if `root` is empty; -1 if there is
  /// no such connection.
  int pmi = -1;
  bool one_host = false;  ///< True if all ranks are known to be on this host.
  /// Source of the placement: "MCCL", "torchrun", "Open MPI", "MPICH", "Slurm" or "mlx.launch".
  std::string_view found_by;

  friend bool operator==(const Placement&, const Placement&) = default;
};

/// Finds this process's placement in its job. Tries, in this order, the MCCL_* settings, torchrun,
/// Open MPI, MPICH (hydra), Slurm (srun) and mlx.launch --backend nccl. Uses the first of these
/// sources that has complete information. MCCL_ROOT, if set, replaces the address of rank 0 that
/// this source reports. MPI precedes Slurm, because ranks of MPI may inherit Slurm's variables from
/// the daemon that started them. Returns std::nullopt if the environment contains no launcher's
/// variables. With backend=mpi no address of rank 0 is needed, because MPI connects the ranks
/// itself. Throws InvalidArgument if values are invalid, or if only some of the variables are set,
/// for example MCCL_ROOT alone.
MCCL_API std::optional<Placement> find_placement(
    const Config& config, const std::map<std::string, std::string>& environment);

/// True if the ranks of a job with these settings find their rank and each other through MPI, and
/// therefore need neither a meeting point nor a store.
MCCL_API bool meets_by_mpi(const Config& config);

namespace rendezvous {

class Wiring;

/// Result of join(): the store and the cables through which a process connects to the other ranks.
struct Joined {
  std::shared_ptr<Store> store;  ///< Null when the job has one rank.
  /// The cables of the job; null if every rank can connect to every other rank directly.
  std::shared_ptr<Wiring> wiring;
};

/// Connects to the job's store, along the job's cables if the settings name a hostfile. Blocks for
/// at most the time in the setting connect_timeout. Counts refused connections in `metrics`, which
/// may be null.
MCCL_API Joined join(const Placement& placement, const Config& config,
                     const std::shared_ptr<Metrics>& metrics = nullptr);

/// Returns the host:port at which rank 0 serves the store: `placement.root`, or the address that
/// rank 0 distributes through MPICH's launcher. The launcher answers only once in the lifetime of a
/// process, and only after all ranks have called this function. Returns an empty text if no store
/// is needed (with MPI, or for a single rank), or if no launcher provides the address (with a
/// hostfile). Throws InvalidArgument if `placement.root` is not an address, and Error if the
/// launcher fails.
MCCL_API std::string meeting_point(const Placement& placement, const Config& config);

}  // namespace rendezvous
}  // namespace mccl
