// A job that an mpirun starts instead: Open MPI's or MPICH's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/launch/job.h"

namespace mccl::cli::launch {

/// Hydra is MPICH's, Intel MPI's and MVAPICH's.
enum class MpirunKind { open_mpi, hydra };

struct Mpirun {
  std::string program;
  MpirunKind kind = MpirunKind::open_mpi;
};

struct MpiOptions {
  std::vector<std::string> arguments;  ///< The user's own, for mpirun; each may be several words.
  Variables inherited;                 ///< The launcher's environment.
  std::optional<int> starting_port;    ///< As of other jobs; see run.h.
  std::uint16_t master_port = 0;       ///< Torch's.
};

/// By what an mpirun answers to --version. Throws Error for one that is neither.
MpirunKind kind_of_mpirun(const std::string& program, std::string_view version);

/// The mpirun in the launcher's PATH. Throws Error when there is none.
Mpirun find_mpirun(const Variables& inherited);

/// What the ranks get beyond what mpirun tells them: what is forwarded and asked for, the engine,
/// the key, where to meet, and where MLX finds the library of this `mpirun`.
Variables mpi_variables(const Job& job, const MpiOptions& options, const Mpirun& mpirun);

/// The words of an mpirun that starts the job's ranks on its hosts, with these variables.
std::vector<std::string> mpirun_words(const Job& job, const MpiOptions& options, MpirunKind kind,
                                      const Variables& variables);

/// Becomes that mpirun. Throws Error when it cannot.
[[noreturn]] void become_mpirun(const Job& job, const MpiOptions& options, const Mpirun& mpirun);

}  // namespace mccl::cli::launch
