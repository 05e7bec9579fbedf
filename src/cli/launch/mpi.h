// Jobs whose ranks are started by the mpirun of Open MPI or of MPICH.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/launch/job.h"

namespace mccl::cli::launch {

/// Hydra is the launcher of MPICH, Intel MPI and MVAPICH.
enum class MpirunKind { open_mpi, hydra };

struct Mpirun {
  std::string program;
  MpirunKind kind = MpirunKind::open_mpi;
};

struct MpiOptions {
  /// Values of --mpi-arg: one or more arguments each, quoted as for a shell.
  std::vector<std::string> arguments;
  Variables inherited;  ///< The launcher's environment.
  /// Value of --starting-port; unset: kUsualPort. MCCL_ROOT uses the port two below it.
  std::optional<int> starting_port;
  std::uint16_t master_port = 0;  ///< MASTER_PORT, for torch.
};

/// `version` is the output of the mpirun `program` for --version. Throws Error if it names no known
/// kind.
MpirunKind kind_of_mpirun(const std::string& program, std::string_view version);

/// Throws Error if the launcher's PATH contains no mpirun.
Mpirun find_mpirun(const Variables& inherited);

/// The variables that ranks get in addition to mpirun's own: those of forwarded() and of the
/// request; MCCL's backend, job key and rank 0's address; and, for MLX, the MPI library of
/// `mpirun`.
Variables mpi_variables(const Job& job, const MpiOptions& options, const Mpirun& mpirun);

/// The argv of an mpirun that starts the job's ranks on its hosts.
std::vector<std::string> mpirun_words(const Job& job, const MpiOptions& options, MpirunKind kind,
                                      const Variables& variables);

[[noreturn]] void become_mpirun(const Job& job, const MpiOptions& options, const Mpirun& mpirun);

}  // namespace mccl::cli::launch
