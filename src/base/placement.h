// A process's place in a job, as reported by the launcher that started it.
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
  int local_rank = -1;  ///< Rank among the ranks of this host; -1 if unknown.
  std::string root;     ///< host:port at which rank 0 serves the store; may be empty for one rank.
  int pmi = -1;  ///< Used without a root: the descriptor through which MPICH's launcher answers.
  bool one_host = false;      ///< All ranks are known to be on this host.
  std::string_view found_by;  ///< "MCCL", "torchrun", "Open MPI", "MPICH", "Slurm" or "mlx.launch".

  friend bool operator==(const Placement&, const Placement&) = default;
};

/// Finds this process's place in its job. Asks, in this order, the MCCL_* settings, torchrun, Open
/// MPI, MPICH (hydra), Slurm (srun) and mlx.launch --backend nccl. The first one with complete
/// information wins, and MCCL_ROOT overrides its meeting point. MPI precedes Slurm, because ranks
/// of MPI may inherit Slurm's variables from the daemon that started them. Returns nothing if there
/// is no trace of a launcher. With backend=mpi there is no meeting point, because MPI has its own.
/// Throws InvalidArgument if values are invalid, or if only a part of them is set, for example
/// MCCL_ROOT alone.
std::optional<Placement> find_placement(const Config& config,
                                        const std::map<std::string, std::string>& environment);

/// True if the ranks of a job with these settings find their places and each other through MPI, and
/// so need neither a meeting point nor a store.
bool meets_by_mpi(const Config& config);

/// A port below the range that systems assign, equal for equal seeds. Ranks that share nothing but
/// a name can meet there.
int derived_port(std::string_view seed);

}  // namespace mccl
