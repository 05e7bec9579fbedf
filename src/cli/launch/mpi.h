// A job that Open MPI's mpirun starts instead.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/launch/job.h"

namespace mccl::cli::launch {

struct MpiOptions {
  std::vector<std::string> arguments;  ///< The user's own, for mpirun.
  Variables inherited;                 ///< The launcher's environment.
  std::optional<int> starting_port;    ///< As of other jobs; see run.h.
};

/// What the ranks get beyond what mpirun tells them: what is forwarded and asked for, the key,
/// where to meet when there are several hosts, and where MLX finds the library of this `mpirun`
/// (empty: nowhere).
Variables mpi_variables(const Job& job, const MpiOptions& options, const std::string& mpirun);

/// The words of an mpirun that starts the job's ranks on its hosts, with these variables.
std::vector<std::string> mpirun_words(const Job& job, const MpiOptions& options,
                                      const Variables& variables);

/// The mpirun in the launcher's PATH; empty when there is none.
std::string find_mpirun(const Variables& inherited);

/// Becomes that mpirun. Throws Error when it is not there.
[[noreturn]] void become_mpirun(const Job& job, const MpiOptions& options);

}  // namespace mccl::cli::launch
