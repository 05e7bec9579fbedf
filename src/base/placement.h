// A process's place in a job, as whatever started the job tells it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "mccl/config.h"

namespace mccl {

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
std::optional<Placement> find_placement(const Config& config,
                                        const std::map<std::string, std::string>& environment);

/// Whether the ranks of a job of these settings find their places and each other by MPI, so that
/// they need neither a meeting point nor a store.
bool meets_by_mpi(const Config& config);

/// A port below those that systems hand out, the same for the same seed: where the ranks of a job
/// can meet that share nothing but a name.
int derived_port(std::string_view seed);

}  // namespace mccl
