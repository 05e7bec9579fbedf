// How a process finds its place in a job and the store at which the ranks meet: the parts of
// Context::from_environment(), for a program that goes through them one by one.
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

/// A process's place in a job, as whatever started the job tells it.
struct Placement {
  int rank = 0;
  int size = 1;
  int local_rank = -1;  ///< Among the ranks of this host; -1 when nobody tells.
  std::string root;     ///< host:port at which rank 0 serves the store; may be empty for one rank.
  int pmi = -1;         ///< Instead of a root: the descriptor at which MPICH's launcher answers.
  bool one_host = false;      ///< All ranks are known to be on this host.
  std::string_view found_by;  ///< "MCCL", "torchrun", "Open MPI", "MPICH", "Slurm" or "mlx.launch".

  friend bool operator==(const Placement&, const Placement&) = default;
};

/// Asks, in this order, the MCCL_* settings, torchrun, Open MPI, MPICH (hydra), Slurm (srun) and
/// mlx.launch --backend nccl;
/// the first that tells all wins, and MCCL_ROOT is the meeting point for any of them. MPI goes
/// before Slurm, whose variables its ranks may inherit from the daemon that started them. Nothing
/// when there is no trace of a launcher. With backend=mpi there is no meeting point: MPI has its
/// own. Throws InvalidArgument when one tells only part, as MCCL_ROOT alone does, or nonsense.
MCCL_API std::optional<Placement> find_placement(
    const Config& config, const std::map<std::string, std::string>& environment);

/// Whether the ranks of a job of these settings find their places and each other by MPI, so that
/// they need neither a meeting point nor a store.
MCCL_API bool meets_by_mpi(const Config& config);

namespace rendezvous {

class Wiring;

/// What a process meets the others through.
struct Joined {
  std::shared_ptr<Store> store;    ///< Null when the job has one rank.
  std::shared_ptr<Wiring> wiring;  ///< Null where every rank reaches every other.
};

/// Waits as long as the settings let it. Strangers are counted in `metrics`, unless it is null.
MCCL_API Joined join(const Placement& placement, const Config& config,
                     const std::shared_ptr<Metrics>& metrics = nullptr);

/// host:port at which rank 0 serves the store, as the placement has it or as rank 0 tells through
/// MPICH's launcher, which answers once in the life of a process. Blocks until all ranks ask. Empty
/// where ranks need none (MPI, a single rank) or no launcher tells one (a hostfile). Throws Error.
MCCL_API std::string meeting_point(const Placement& placement, const Config& config);

}  // namespace rendezvous
}  // namespace mccl
