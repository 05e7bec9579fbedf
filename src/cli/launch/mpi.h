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
  /// Values of --mpi-arg. Each holds one or more arguments for mpirun, quoted as for a shell.
  std::vector<std::string> arguments;
  Variables inherited;  ///< The launcher's environment.
  /// Value of --starting-port; unset: kUsualPort. MCCL_ROOT uses the port two below it.
  std::optional<int> starting_port;
  std::uint16_t master_port = 0;  ///< MASTER_PORT, for torch.
};

/// Returns the kind of the mpirun `program`. `version` is the program's output for --version.
/// Throws Error if that output names no known kind of mpirun.
MpirunKind kind_of_mpirun(const std::string& program, std::string_view version);

/// Returns the mpirun in the launcher's PATH. Throws Error if PATH contains no mpirun.
Mpirun find_mpirun(const Variables& inherited);

/// Returns the variables that ranks get in addition to mpirun's own: those of forwarded() and of
/// the request; MCCL's backend, job key and rank 0's address; and, for MLX, the MPI library of
/// `mpirun`.
Variables mpi_variables(const Job& job, const MpiOptions& options, const Mpirun& mpirun);

/// Returns the argv of an mpirun that starts the job's ranks on its hosts, with these variables.
std::vector<std::string> mpirun_words(const Job& job, const MpiOptions& options, MpirunKind kind,
                                      const Variables& variables);

/// Replaces this process with an mpirun that starts the job. Throws Error on failure.
[[noreturn]] void become_mpirun(const Job& job, const MpiOptions& options, const Mpirun& mpirun);

}  // namespace mccl::cli::launch
